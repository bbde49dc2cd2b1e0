//! An issuer's public keys (JWKS, RFC 7517): fetched, cached, and kept while the issuer is unavailable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::StreamExt;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::ports::BoxFuture;
use crate::ports::keys::{KeySet, KeySource, KeysUnavailable, VerifyingKey};

/// How often keys are fetched from an issuer, and how long a fetched set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JwksTimes {
    /// A set older than this is fetched again.
    pub fresh: Duration,
    /// Minimum time between two fetches, however many tokens arrive.
    pub floor: Duration,
    /// A set is used for at most this long while no newer set can be fetched.
    pub stale: Duration,
    /// Timeout of a request to the issuer.
    pub timeout: Duration,
}

impl Default for JwksTimes {
    /// Fresh for 10 minutes, fetched at most every 10 seconds, used for at most a day, 5 seconds to fetch.
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(600),
            floor: Duration::from_secs(10),
            stale: Duration::from_secs(24 * 3600),
            timeout: Duration::from_secs(5),
        }
    }
}

/// Maximum size of a key set, in bytes.
const MAX_BYTES: usize = 512 * 1024;
/// Smaller RSA keys are not trusted (RFC 7518 section 3.3).
const MIN_RSA_BYTES: usize = 256;

/// The keys at one URL.
pub struct Jwks {
    issuer: Arc<Issuer>,
    /// When the issuer was last contacted. The lock is held during the fetch, so one request fetches for all.
    contacted: Arc<Mutex<Option<Instant>>>,
    fetches: TaskTracker,
}

struct Issuer {
    client: reqwest::Client,
    url: Url,
    times: JwksTimes,
    known: ArcSwapOption<Known>,
}

struct Known {
    set: Arc<KeySet>,
    at: Instant,
}

impl Jwks {
    /// Fetches nothing yet. Redirects are not followed: only the configured URL is used.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(url: Url) -> Result<Self, reqwest::Error> {
        Self::with_times(url, JwksTimes::default())
    }

    /// As [`Jwks::new`], with other times.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn with_times(url: Url, times: JwksTimes) -> Result<Self, reqwest::Error> {
        // An error only means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(times.timeout)
            .build()?;
        Ok(Self {
            issuer: Arc::new(Issuer {
                client,
                url,
                times,
                known: ArcSwapOption::empty(),
            }),
            contacted: Arc::default(),
            fetches: TaskTracker::new(),
        })
    }

    async fn get(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        match self.issuer.usable() {
            Some(known) if known.at.elapsed() < self.issuer.times.fresh => Ok(Arc::clone(&known.set)),
            // One request fetches a new set. Requests that arrive meanwhile use the set at hand.
            Some(known) => match Arc::clone(&self.contacted).try_lock_owned() {
                Ok(contacted) => self.refresh(contacted, known.set.generation).await,
                Err(_) => Ok(Arc::clone(&known.set)),
            },
            None => self.refresh(Arc::clone(&self.contacted).lock_owned().await, 0).await,
        }
    }

    /// Fetches, unless a newer set than generation `seen` is known or the last fetch is too recent.
    async fn refresh(
        &self,
        mut contacted: OwnedMutexGuard<Option<Instant>>,
        seen: u64,
    ) -> Result<Arc<KeySet>, KeysUnavailable> {
        let known = self.issuer.usable();
        let generation = known.as_ref().map_or(0, |known| known.set.generation);
        let too_soon = contacted.is_some_and(|at| at.elapsed() < self.issuer.times.floor);
        let failure = if generation > seen || too_soon {
            "the keys were fetched a moment ago".to_owned()
        } else {
            *contacted = Some(Instant::now());
            // The fetch continues if the caller hangs up: other requests wait for it, and it counts against `floor`.
            let issuer = Arc::clone(&self.issuer);
            let fetch = self.fetches.spawn(async move {
                let fetched = issuer.fetch().await;
                if let Err(failure) = &fetched {
                    tracing::warn!(
                        host = issuer.url.host_str(),
                        failure,
                        "the issuer's keys could not be fetched"
                    );
                }
                let learned = fetched.map(|keys| issuer.learn(keys, generation + 1));
                drop(contacted);
                learned
            });
            match fetch.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(set) => return Ok(set),
                Err(failure) => failure,
            }
        };
        known
            .map(|known| Arc::clone(&known.set))
            .ok_or_else(|| KeysUnavailable(failure.into()))
    }
}

impl Issuer {
    /// The set, unless it is older than `stale`.
    fn usable(&self) -> Option<Arc<Known>> {
        self.known
            .load_full()
            .filter(|known| known.at.elapsed() < self.times.stale)
    }

    fn learn(&self, keys: Vec<VerifyingKey>, generation: u64) -> Arc<KeySet> {
        tracing::info!(
            host = self.url.host_str(),
            keys = keys.len(),
            "the issuer's keys were fetched"
        );
        let set = Arc::new(KeySet { generation, keys });
        self.known.store(Some(Arc::new(Known {
            set: Arc::clone(&set),
            at: Instant::now(),
        })));
        set
    }

    async fn fetch(&self) -> Result<Vec<VerifyingKey>, String> {
        let response = self.client.get(self.url.clone()).send().await.map_err(words)?;
        let response = response.error_for_status().map_err(words)?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status()));
        }
        let mut body = Vec::new();
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(words)?);
            if body.len() > MAX_BYTES {
                return Err(format!("the response has more than {MAX_BYTES} bytes"));
            }
        }
        parse(&body)
    }
}

/// The error with its cause, without the URL: the host is logged separately.
fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

impl KeySource for Jwks {
    fn current(&self) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        Box::pin(self.get())
    }

    fn newer(&self, seen: u64) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        Box::pin(async move { self.refresh(Arc::clone(&self.contacted).lock_owned().await, seen).await })
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

/// Skips each key that cannot verify a token: a set may hold keys for other purposes.
fn parse(body: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    let document: Document = serde_json::from_slice(body).map_err(|error| format!("invalid key set: {error}"))?;
    let read = |value: Value| {
        let id = value.get("kid").and_then(Value::as_str).map(str::to_owned);
        match key(value) {
            Ok(key) => Some(key),
            Err(reason) => {
                tracing::warn!(kid = id, reason, "ignored a key of the issuer");
                None
            }
        }
    };
    let keys: Vec<_> = document.keys.into_iter().filter_map(read).collect();
    if keys.is_empty() {
        Err("the set has no usable key".to_owned())
    } else {
        Ok(keys)
    }
}

fn key(value: Value) -> Result<VerifyingKey, &'static str> {
    let jwk: Jwk = serde_json::from_value(value).map_err(|_| "it cannot be parsed")?;
    if jwk
        .common
        .public_key_use
        .as_ref()
        .is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
    {
        return Err("it is not for signatures");
    }
    let mut algorithms = algorithms(&jwk)?;
    if let Some(only) = jwk.common.key_algorithm {
        let name = only.to_string();
        algorithms.retain(|algorithm| format!("{algorithm:?}") == name);
    }
    if algorithms.is_empty() {
        return Err("its alg does not match its key type");
    }
    let decoding = DecodingKey::from_jwk(&jwk).map_err(|_| "its key parameters are invalid")?;
    if let DecodingKeyKind::RsaModulusExponent { n, .. } = decoding.kind()
        && n.len() < MIN_RSA_BYTES
    {
        return Err("it is an RSA key of less than 2048 bits");
    }
    Ok(VerifyingKey {
        id: jwk.common.key_id,
        algorithms,
        key: decoding,
    })
}

/// The algorithms that a key of this type may verify. A symmetric key at a public URL is no secret, so it is rejected.
fn algorithms(jwk: &Jwk) -> Result<Vec<Algorithm>, &'static str> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Ok(vec![RS256, RS384, RS512, PS256, PS384, PS512]),
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => Ok(vec![ES256]),
            EllipticCurve::P384 => Ok(vec![ES384]),
            _ => Err("its curve is not supported"),
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => Ok(vec![EdDSA]),
        AlgorithmParameters::OctetKeyPair(_) => Err("its curve is not supported"),
        AlgorithmParameters::OctetKey(_) => Err("it is symmetric"),
        _ => Err("its key type is not supported"),
    }
}

#[cfg(test)]
mod tests;
