//! What a run is prepared from, as its row stores it.

use std::fmt::Display;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Settings;
use crate::next::Ending;
use crate::ports::runs::StoredRun;
use crate::snapshot::DefinitionSnapshot;

/// What a run is prepared from, as its row stores it.
pub struct Given {
    /// The definitions that it needs, with its own.
    pub bundle: Arc<DefinitionSnapshot>,
    /// Its settings.
    pub settings: Settings,
    /// Its inputs.
    pub input: Map<String, Value>,
}

/// What is known of a run before its row is read.
pub(super) enum Known<'a> {
    /// The definitions of the run that called it, if one did.
    Bundle(Option<&'a Arc<DefinitionSnapshot>>),
    All(Box<Given>),
}

impl Known<'_> {
    /// Reads what is not known.
    ///
    /// # Errors
    /// [`Ending::Unable`]: what is stored is of a later version, or damaged.
    pub(super) fn read(self, stored: &StoredRun) -> Result<Given, Ending> {
        let unable = |what: &str, error: &dyn Display| Ending::Unable(format!("{what}: {error}"));
        let known = match self {
            Self::All(given) => return Ok(*given),
            Self::Bundle(bundle) => bundle,
        };
        Ok(Given {
            bundle: DefinitionSnapshot::read_once(&stored.snapshot, known)
                .map_err(|error| unable("its definition cannot be read", &error))?,
            settings: Settings::read(&stored.settings).map_err(Ending::Unable)?,
            input: serde_json::from_str(stored.input.get())
                .map_err(|error| unable("its inputs cannot be read", &error))?,
        })
    }
}
