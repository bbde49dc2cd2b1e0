//! A service account of Google Cloud, and its claim for a token (RFC 7523).

use std::fmt;
use std::path::Path;

use anyhow::{Context, ensure};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::{ToolError, internal, settings};

/// The longest lifetime that Google accepts, in seconds.
const SECONDS: u64 = 3600;

/// The account.
#[derive(Clone)]
pub struct ServiceAccount {
    email: String,
    key: EncodingKey,
    key_id: Option<String>,
    /// Where its tokens come from, as its file says.
    pub token_url: Option<String>,
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("email", &self.email)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct KeyFile {
    r#type: String,
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

impl ServiceAccount {
    /// Reads the JSON key file that the setting `name` names.
    pub fn read(name: &str, path: &Path) -> anyhow::Result<Self> {
        let text = settings::file(name, path)?;
        // The parser's message could quote the key.
        let file: Option<KeyFile> = serde_json::from_str(&text).ok();
        let file = file.with_context(|| format!("{name} is not the JSON key file of a service account"))?;
        ensure!(
            file.r#type == "service_account",
            "{name}: its type must be service_account"
        );
        let key = EncodingKey::from_rsa_pem(file.private_key.as_bytes()).ok();
        Ok(Self {
            email: file.client_email,
            key: key.with_context(|| format!("{name}: private_key is not an RSA key in PEM form"))?,
            key_id: file.private_key_id,
            token_url: file.token_uri,
        })
    }

    /// The form that asks this address for a token, for the account itself or for a user of its domain.
    pub fn form(&self, url: &Url, scope: &str, user: Option<&str>) -> Result<String, ToolError> {
        let header = Header {
            kid: self.key_id.clone(),
            ..Header::new(Algorithm::RS256)
        };
        let now = jsonwebtoken::get_current_timestamp();
        let claims = Claims {
            iss: &self.email,
            sub: user,
            scope,
            aud: url.as_str(),
            iat: now,
            exp: now + SECONDS,
        };
        let signed = jsonwebtoken::encode(&header, &claims, &self.key).map_err(|error| {
            tracing::error!(%error, "the claim of the service account cannot be signed");
            internal()
        })?;
        Ok(Serializer::new(String::new())
            .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
            .append_pair("assertion", &signed)
            .finish())
    }
}
