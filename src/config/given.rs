//! One given value, and where a secret comes from.

use std::io;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::origin::Origin;

/// One value from one source, as a figment provider.
pub(super) struct Given {
    pub(super) key: &'static str,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl Provider for Given {
    fn metadata(&self) -> Metadata {
        self.origin.to_metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(self.key, self.value.clone());
        Ok(Map::from([(Profile::Default, nested.into_dict().unwrap_or_default())]))
    }
}

/// The secret in a file, without the trailing line break that editors and `echo` add.
pub(super) fn secret_in(path: &Path, read_file: &dyn Fn(&Path) -> io::Result<String>) -> Result<String, String> {
    let text = read_file(path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("is empty; it must contain the secret".to_owned()),
        secret => Ok(secret.to_owned()),
    }
}
