//! Application default credentials: the places that Google's tools search, in the same order.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::credentials::{Credentials, METADATA_BASE};
use crate::config::{ConfigError, invalid};

/// Where to search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdcSources {
    /// `GOOGLE_APPLICATION_CREDENTIALS`. If it is set, the file must exist.
    pub credentials_file: Option<PathBuf>,
    /// The file that gcloud writes to the user's home directory. Used if it exists.
    pub gcloud_file: Option<PathBuf>,
    /// Scheme, host and port of the metadata server. Absent means Google's.
    pub metadata_base: Option<String>,
    /// `GOOGLE_CLOUD_QUOTA_PROJECT`. Takes precedence over the files.
    pub quota_project: Option<String>,
}

/// Builds the sources from environment values that the configuration has read: `GOOGLE_APPLICATION_CREDENTIALS`,
/// `CLOUDSDK_CONFIG`, `HOME`, `GCE_METADATA_HOST`, `GOOGLE_CLOUD_QUOTA_PROJECT`. An empty value counts as absent.
#[must_use]
pub fn adc_from_env_values(
    application_credentials: Option<&str>,
    cloudsdk_config: Option<&str>,
    home: Option<&str>,
    metadata_host: Option<&str>,
    quota_project: Option<&str>,
) -> AdcSources {
    let set = |value: Option<&str>| {
        value
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    };
    let gcloud = set(cloudsdk_config)
        .map(PathBuf::from)
        .or_else(|| set(home).map(|home| Path::new(&home).join(".config/gcloud")));
    AdcSources {
        credentials_file: set(application_credentials).map(PathBuf::from),
        gcloud_file: gcloud.map(|directory| directory.join("application_default_credentials.json")),
        metadata_base: set(metadata_host).map(|host| match host.contains("://") {
            true => host,
            false => format!("http://{host}"),
        }),
        quota_project: set(quota_project),
    }
}

impl AdcSources {
    /// Returns the first credentials found. Without a file, these are the metadata server's; it is contacted only when
    /// a token is needed.
    ///
    /// # Errors
    /// A named file is missing, or an existing file cannot be used.
    pub fn find(&self) -> Result<Credentials, ConfigError> {
        let place = |path: &Path| path.display().to_string();
        let found = if let Some(path) = &self.credentials_file {
            let json = std::fs::read_to_string(path).map_err(|error| {
                invalid(
                    format!("GOOGLE_APPLICATION_CREDENTIALS={}", place(path)),
                    error.to_string(),
                )
            })?;
            Credentials::from_json(&json, &place(path))?
        } else {
            match self
                .gcloud_file
                .as_deref()
                .map(|path| (path, std::fs::read_to_string(path)))
            {
                Some((path, Ok(json))) => Credentials::from_json(&json, &place(path))?,
                Some((path, Err(error))) if error.kind() != ErrorKind::NotFound => {
                    return Err(invalid(place(path), error.to_string()));
                }
                Some(_) | None => Credentials::Metadata {
                    base_url: self.metadata_base.clone().unwrap_or_else(|| METADATA_BASE.to_owned()),
                    quota_project: None,
                },
            }
        };
        Ok(found.with_quota_project(self.quota_project.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const USER: &str = r#"{"type":"authorized_user","client_id":"ID","client_secret":"s","refresh_token":"r"}"#;

    fn client_id(credentials: &Credentials) -> &str {
        match credentials {
            Credentials::AuthorizedUser(user) => &user.client_id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_named_file_comes_before_gclouds_and_the_metadata_server_last() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let named = home.join("named.json");
        std::fs::write(&named, USER.replace("ID", "named")).unwrap();
        let gcloud = home.join(".config/gcloud");
        let values =
            |named: Option<&str>| adc_from_env_values(named, Some(""), home.to_str(), Some("meta:80"), Some("q"));
        let metadata = values(None).find().unwrap();
        assert!(matches!(&metadata, Credentials::Metadata { base_url, .. } if base_url == "http://meta:80"));
        std::fs::create_dir_all(&gcloud).unwrap();
        std::fs::write(
            gcloud.join("application_default_credentials.json"),
            USER.replace("ID", "gcloud"),
        )
        .unwrap();
        assert_eq!(client_id(&values(None).find().unwrap()), "gcloud");
        let found = values(named.to_str()).find().unwrap();
        assert_eq!((client_id(&found), found.quota_project()), ("named", Some("q")));
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error_and_not_passed_over() {
        let sources = adc_from_env_values(Some("/nowhere/adc.json"), None, None, None, None);
        let error = sources.find().unwrap_err().to_string();
        assert!(
            error.contains("GOOGLE_APPLICATION_CREDENTIALS=/nowhere/adc.json"),
            "{error}"
        );
    }
}
