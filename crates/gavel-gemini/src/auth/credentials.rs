//! The kinds of credentials that Google's tools write, as in their JSON files.

use jsonwebtoken::EncodingKey;
use secrecy::SecretString;
use serde::Deserialize;

use crate::config::{ConfigError, invalid};

/// Google's token endpoint, for files that do not name one.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// The metadata server of Google's machines.
pub const METADATA_BASE: &str = "http://metadata.google.internal";

/// The source of access tokens.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A service account's key file.
    ServiceAccount(ServiceAccount),
    /// The file that `gcloud auth application-default login` writes.
    AuthorizedUser(AuthorizedUser),
    /// The identity of the machine.
    Metadata {
        /// Scheme, host and port; [`METADATA_BASE`] is Google's.
        base_url: String,
        /// The billing project, if it differs from the machine's.
        quota_project: Option<String>,
    },
}

/// A service account and its private key.
#[derive(Clone, Debug, Deserialize)]
pub struct ServiceAccount {
    /// The account's identity.
    pub client_email: String,
    /// PEM, PKCS#8 or PKCS#1.
    #[serde(deserialize_with = "secret")]
    pub private_key: SecretString,
    /// Identifies the key among the account's keys.
    #[serde(default)]
    pub private_key_id: Option<String>,
    /// The token endpoint.
    #[serde(default = "token_uri")]
    pub token_uri: String,
    /// The billing project.
    #[serde(default)]
    pub quota_project_id: Option<String>,
}

/// A user's refresh token.
#[derive(Clone, Debug, Deserialize)]
pub struct AuthorizedUser {
    /// The OAuth client that requested the refresh token.
    pub client_id: String,
    /// Secret of that OAuth client.
    #[serde(deserialize_with = "secret")]
    pub client_secret: SecretString,
    /// Exchanged for access tokens.
    #[serde(deserialize_with = "secret")]
    pub refresh_token: SecretString,
    /// The token endpoint.
    #[serde(default = "token_uri")]
    pub token_uri: String,
    /// The billing project.
    #[serde(default)]
    pub quota_project_id: Option<String>,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

fn token_uri() -> String {
    TOKEN_URI.to_owned()
}

impl Credentials {
    /// Parses a credentials file's JSON; `place` names the file in errors.
    ///
    /// # Errors
    /// Invalid JSON, a missing field, or a `type` other than `service_account` and `authorized_user`.
    pub fn from_json(json: &str, place: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Kind {
            r#type: Option<String>,
        }
        // The parser's message could quote a secret. Only the position or the name of the missing field is reported.
        let reported = |error: &serde_json::Error| {
            let words = error.to_string();
            if words.starts_with("missing field") {
                words
            } else {
                format!(
                    "not the expected JSON (line {}, column {})",
                    error.line(),
                    error.column()
                )
            }
        };
        let kind: Kind = serde_json::from_str(json).map_err(|error| invalid(place, reported(&error)))?;
        let read = match kind.r#type.as_deref() {
            Some("service_account") => serde_json::from_str(json).map(Self::ServiceAccount),
            Some("authorized_user") => serde_json::from_str(json).map(Self::AuthorizedUser),
            other => {
                let found = other.map_or("none".to_owned(), |kind| format!("{kind:?}"));
                return Err(invalid(
                    place,
                    format!("type {found} is not supported; allowed are \"service_account\" and \"authorized_user\""),
                ));
            }
        };
        read.map_err(|error| invalid(place, reported(&error)))
    }

    /// The billing project.
    #[must_use]
    pub fn quota_project(&self) -> Option<&str> {
        match self {
            Self::ServiceAccount(account) => account.quota_project_id.as_deref(),
            Self::AuthorizedUser(user) => user.quota_project_id.as_deref(),
            Self::Metadata { quota_project, .. } => quota_project.as_deref(),
        }
    }

    /// The same credentials with another billing project (`GOOGLE_CLOUD_QUOTA_PROJECT`).
    #[must_use]
    pub fn with_quota_project(mut self, project: Option<String>) -> Self {
        if project.is_some() {
            match &mut self {
                Self::ServiceAccount(account) => account.quota_project_id = project,
                Self::AuthorizedUser(user) => user.quota_project_id = project,
                Self::Metadata { quota_project, .. } => *quota_project = project,
            }
        }
        self
    }
}

/// Parses the private key at startup, so that an invalid key fails the start and not the first request.
pub(super) fn signing_key(account: &ServiceAccount) -> Result<EncodingKey, ConfigError> {
    use secrecy::ExposeSecret;
    EncodingKey::from_rsa_pem(account.private_key.expose_secret().as_bytes())
        .map_err(|_| invalid("private_key", "it is not an RSA key in PEM form"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_are_distinguished_by_their_type() {
        let user = r#"{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"r","quota_project_id":"q"}"#;
        let read = Credentials::from_json(user, "adc").unwrap();
        assert_eq!(read.quota_project(), Some("q"));
        assert!(matches!(&read, Credentials::AuthorizedUser(user) if user.token_uri == TOKEN_URI));
        assert_eq!(
            read.with_quota_project(Some("other".into())).quota_project(),
            Some("other")
        );
        let account = r#"{"type":"service_account","client_email":"e","private_key":"k","token_uri":"http://t"}"#;
        let read = Credentials::from_json(account, "adc").unwrap();
        assert!(matches!(&read, Credentials::ServiceAccount(account) if account.token_uri == "http://t"));
    }

    #[test]
    fn an_invalid_file_is_named_with_its_error_and_no_secret() {
        for (json, words) in [
            (r#"{"type":"external_account"}"#, "external_account"),
            (r#"{}"#, "type none"),
            (
                r#"{"type":"authorized_user","client_id":"c","client_secret":"s3cret"}"#,
                "missing field `refresh_token`",
            ),
            (
                r#"{"type":"service_account","client_email":"e","private_key":["s3cret"]}"#,
                "expected",
            ),
            ("s3cret", "expected"),
        ] {
            let error = Credentials::from_json(json, "/adc.json").unwrap_err().to_string();
            assert!(error.starts_with("/adc.json: ") && error.contains(words), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let user = r#"{"type":"authorized_user","client_id":"c","client_secret":"s3cret","refresh_token":"s3cret"}"#;
        assert!(!format!("{:?}", Credentials::from_json(user, "adc").unwrap()).contains("s3cret"));
    }
}
