//! The last row of the chain.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::chain::BEGINNING;

/// The last row of the chain, to be kept elsewhere. Its text form is `NUMBER:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of rows.
    pub number: i64,
    /// The hash of the last row.
    pub hash: String,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "expected NUMBER:HASH, as printed by `gavel audit head`".to_owned();
        let (number, hash) = text.trim().split_once(':').ok_or_else(invalid)?;
        let number = number.parse().ok().filter(|number| *number >= 0).ok_or_else(invalid)?;
        let is_hash = hash.len() == BEGINNING.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = is_hash.then(|| hash.to_ascii_lowercase()).ok_or_else(invalid)?;
        Ok(Self { number, hash })
    }
}
