//! What a site allows programs to read (robots.txt, RFC 9309).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gavel_mcp_base::ToolError;
use texting_robots::Robot;
use tokio::time::Instant;
use url::Url;

use crate::error::{robots_refused, robots_unreadable};
use crate::guard::{Guard, Target};
use crate::http::{Http, Response};
use crate::page::decoded;
use crate::redirects;
use crate::work::Workers;

/// The name by which a robots.txt addresses this server.
const AGENT: &str = "gavel-mcp-web";
/// How long the rules of a site are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// How many sites are remembered.
const SITES: usize = 128;
/// The longest robots.txt that is read, in bytes. RFC 9309 asks for at least 500 KiB.
const MAX: usize = 512 << 10;
/// The most lines with wildcards. Each becomes a regular expression, which costs much more than a path.
const WILDCARDS: usize = 2_000;

/// The robots.txt of the sites that were asked lately. They are kept as text: parsed, they can be a hundred times
/// larger.
#[derive(Debug, Default)]
pub(crate) struct Robots(Mutex<HashMap<String, Site>>);

#[derive(Debug)]
struct Site {
    at: Instant,
    rules: Rules,
}

/// None if there is no robots.txt.
type Rules = Option<Arc<[u8]>>;

impl Robots {
    /// Succeeds if the site lets programs read the target. A robots.txt that does not exist allows everything; one that
    /// cannot be read now allows nothing, and is not remembered.
    pub(crate) async fn check(
        &self,
        target: &Target,
        guard: &Guard,
        http: &Http,
        workers: &Workers,
    ) -> Result<(), ToolError> {
        let site = target.url.origin().ascii_serialization();
        let rules = match self.kept(&site) {
            Some(rules) => rules,
            None => {
                let rules = read(target, guard, http, workers).await?;
                self.keep(site, rules.clone());
                rules
            }
        };
        let Some(rules) = rules else {
            return Ok(());
        };
        let url = target.url.clone();
        let parsed = workers.run(move || Some(Robot::new(AGENT, &rules).ok()?.allowed(url.as_str())));
        match parsed.await? {
            Some(true) => Ok(()),
            Some(false) => Err(robots_refused()),
            None => Err(robots_unreadable()),
        }
    }

    fn kept(&self, site: &str) -> Option<Rules> {
        let sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sites.get(site).filter(|kept| kept.at.elapsed() < KEPT)?;
        Some(kept.rules.clone())
    }

    fn keep(&self, site: String, rules: Rules) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = sites
            .iter()
            .min_by_key(|(_, kept)| kept.at)
            .map(|(site, _)| site.clone());
        if let Some(oldest) = oldest.filter(|_| sites.len() >= SITES) {
            sites.remove(&oldest);
        }
        let at = Instant::now();
        sites.insert(site, Site { at, rules });
    }
}

/// Reads the robots.txt of the target's site. It has the target's addresses, which were resolved a moment ago.
async fn read(target: &Target, guard: &Guard, http: &Http, workers: &Workers) -> Result<Rules, ToolError> {
    let mut hop = Target {
        url: at_root(&target.url),
        addresses: target.addresses.clone(),
    };
    let mut followed = 0;
    let response = loop {
        let response = http.get(&hop).await.map_err(|_| robots_unreadable())?;
        let next = redirects::next(guard, &hop.url, &response, followed).map_err(|_| robots_unreadable())?;
        let Some(next) = next else {
            break response;
        };
        followed += 1;
        hop = guard.admit(next).await.map_err(|_| robots_unreadable())?;
    };
    match response.status().as_u16() {
        200..=299 => rules(response, workers).await.map(Some),
        400..=499 => Ok(None),
        _ => Err(robots_unreadable()),
    }
}

async fn rules(response: Response, workers: &Workers) -> Result<Arc<[u8]>, ToolError> {
    let encoding = response.header("content-encoding").map(str::to_owned);
    let body = response.body(MAX).await.map_err(|_| robots_unreadable())?;
    let text = workers.run(move || decoded(encoding.as_deref(), body, MAX)).await?;
    let text = text.map_err(|_| robots_unreadable())?;
    let wildcards = text
        .split(|byte| *byte == b'\n')
        .filter(|line| line.contains(&b'*') || line.contains(&b'$'));
    match wildcards.count() > WILDCARDS {
        true => Err(robots_unreadable()),
        false => Ok(text.into()),
    }
}

fn at_root(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path("/robots.txt");
    url.set_query(None);
    url
}
