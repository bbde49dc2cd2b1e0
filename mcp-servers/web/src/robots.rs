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
use crate::page::encoding::decoded;
use crate::redirects;
use crate::work::Workers;

/// The name by which a robots.txt addresses this server.
const AGENT: &str = "gavel-mcp-web";
/// How long the rules of a site are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// How many sites are remembered.
const SITES: usize = 256;
/// The longest robots.txt that is read, in bytes. RFC 9309 asks for at least 500 KiB.
const MAX: usize = 512 << 10;

/// The rules of the sites that were asked lately.
#[derive(Debug, Default)]
pub(crate) struct Robots(Mutex<HashMap<String, Site>>);

#[derive(Debug)]
struct Site {
    at: Instant,
    /// None if there is no robots.txt.
    rules: Option<Arc<Robot>>,
}

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
        match rules {
            Some(rules) if !rules.allowed(target.url.as_str()) => Err(robots_refused()),
            _ => Ok(()),
        }
    }

    fn kept(&self, site: &str) -> Option<Option<Arc<Robot>>> {
        let sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sites.get(site).filter(|kept| kept.at.elapsed() < KEPT)?;
        Some(kept.rules.clone())
    }

    fn keep(&self, site: String, rules: Option<Arc<Robot>>) {
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
async fn read(target: &Target, guard: &Guard, http: &Http, workers: &Workers) -> Result<Option<Arc<Robot>>, ToolError> {
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

async fn rules(response: Response, workers: &Workers) -> Result<Arc<Robot>, ToolError> {
    let encoding = response.header("content-encoding").map(str::to_owned);
    let body = response.body(MAX).await.map_err(|_| robots_unreadable())?;
    let parsed = workers.run(move || {
        let text = decoded(encoding.as_deref(), body, MAX).ok()?;
        Robot::new(AGENT, &text).ok().map(Arc::new)
    });
    parsed.await?.ok_or_else(robots_unreadable)
}

fn at_root(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path("/robots.txt");
    url.set_query(None);
    url
}
