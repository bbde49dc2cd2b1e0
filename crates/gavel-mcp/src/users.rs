//! Connections of single users to a server (`connection: per_user`): opened at a user's first call, closed when idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::config::ServerConfig;
use super::connection::Common;
use super::link::{Link, Listener};
use super::source::Source;

/// The connections to one server.
pub(super) struct Users {
    server: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    /// Each with the time of its last use.
    links: Mutex<HashMap<String, (Arc<Link>, Instant)>>,
    /// One slot for each connection until it has ended. A child takes time to end, and this must not allow more of
    /// them.
    places: Arc<Semaphore>,
}

impl Users {
    pub(super) fn new(server: &Arc<ServerConfig>, source: &Arc<Source>, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            source: source.clone(),
            common: common.clone(),
            links: Mutex::default(),
            places: Arc::new(Semaphore::new(common.max_users)),
        })
    }

    /// The user's own connection. If the maximum is reached, the connection that was idle for longest is closed.
    ///
    /// # Errors
    /// All connections are in use.
    pub(super) fn link(&self, user: &str) -> Result<Arc<Link>, String> {
        let now = Instant::now();
        let mut links = self.lock();
        if let Some((link, used)) = links.get_mut(user) {
            *used = now;
            return Ok(link.clone());
        }
        if links.len() >= self.common.max_users {
            let idle = links.iter().filter(|(_, (link, _))| is_idle(link));
            let longest = idle.min_by_key(|(_, (_, used))| *used).map(|(user, _)| user.clone());
            let Some((link, _)) = longest.and_then(|user| links.remove(&user)) else {
                let most = self.common.max_users;
                return Err(format!(
                    "{most} users have a connection of their own, and all are in use"
                ));
            };
            link.stop();
        }
        let link = Link::new(self.server.clone(), self.source.clone(), &self.common, Arc::new(Deaf));
        let (places, kept) = (self.places.clone(), link.clone());
        self.common.tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            kept.supervise().await;
        });
        links.insert(user.to_owned(), (link.clone(), now));
        Ok(link)
    }

    /// Closes idle connections until gavel stops.
    pub(super) async fn watch(self: Arc<Self>) {
        let pause = self.common.user_idle / 10;
        while self
            .common
            .stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_some()
        {
            self.end_idle();
        }
    }

    fn end_idle(&self) {
        let now = Instant::now();
        self.lock().retain(|_, (link, used)| {
            if !is_idle(link) {
                *used = now;
            }
            let keep = now.duration_since(*used) < self.common.user_idle;
            if !keep {
                link.stop();
            }
            keep
        });
    }

    /// The number of connections.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Do the calls of all connected users fail?
    pub(super) fn all_failing(&self) -> bool {
        let links = self.lock();
        !links.is_empty() && links.values().all(|(link, _)| link.breaker.is_open())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Arc<Link>, Instant)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Apart from the map, which is locked, only the link's own task holds a link that no call uses.
fn is_idle(link: &Arc<Link>) -> bool {
    Arc::strong_count(link) <= 2
}

/// The listener of a user's own connection. Its tools are those of the server.
struct Deaf;

impl Listener for Deaf {
    fn listed(&self, _: &[Value]) {}
    fn lost(&self, _: &str, _: bool) {}
}
