//! The policy file: this module reads it, the domain checks the content, and the engine runs its tests.

use std::fs;
use std::sync::Arc;

use crate::config::{Config, FileError};
use crate::domain::definition::ReadError;
use crate::domain::policy::Policy;
use crate::domain::repository::AllowedRepositories;
use crate::engine::gate::failures;
use crate::surfaces;

/// The policy of a configuration, with passing tests; without a file, a policy without rules.
///
/// # Errors
/// It cannot be read; or all errors in it, or all failed tests.
pub fn policy(config: &Config) -> Result<Arc<Policy>, FileError> {
    let policy = Arc::new(read_policy(config)?);
    let failures = failures(&policy, surfaces::floor);
    if failures.is_empty() {
        Ok(policy)
    } else {
        Err(invalid(&failures))
    }
}

/// As [`policy`], without running its tests.
///
/// # Errors
/// It cannot be read; or all errors in it.
pub fn read_policy(config: &Config) -> Result<Policy, FileError> {
    let policy = match &config.policy.file {
        None => Policy::default(),
        Some(path) => {
            let place = path.display().to_string();
            let text = fs::read_to_string(path)
                .map_err(|error| FileError(format!("the policy {place} cannot be read: {error}")))?;
            Policy::read(&text, &place).map_err(|errors| invalid(&errors))?
        }
    };
    let repositories = AllowedRepositories(super::planning::allowed(config));
    Ok(Policy { repositories, ..policy })
}

fn invalid(errors: &[ReadError]) -> FileError {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    FileError(format!("the policy is invalid:\n{}", lines.join("\n")))
}
