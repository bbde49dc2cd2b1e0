//! Landlock: which files can be read and written, and no TCP.

use anyhow::{Context, ensure};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use super::{PROGRAMS, system_files};
use crate::job::Job;

/// The least version that is enough: with TCP and with `truncate`.
const LEAST: ABI = ABI::V4;
/// The version that also has devices (5), and signals and abstract sockets of others (6).
const BEST: ABI = ABI::V6;

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Restricts this thread for good.
pub(super) fn restrict(job: &Job) -> anyhow::Result<()> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .context("the kernel has no Landlock of version 4 or later (Linux 6.7)")?;
    if !job.sandbox.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(LEAST))?;
    }
    let ruleset = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(BEST))?
        .scope(Scope::from_all(BEST))?
        .create()
        .context("the kernel has no Landlock of version 4 or later (Linux 6.7)")?;
    let read = AccessFs::from_read(BEST);
    let files = AccessFs::ReadFile | AccessFs::WriteFile;
    let status = ruleset
        .add_rules(path_beneath_rules(PROGRAMS, read))?
        .add_rules(path_beneath_rules(system_files(job.sandbox.network), read))?
        .add_rules(path_beneath_rules(&job.sandbox.read_only, read))?
        .add_rules(path_beneath_rules(DEVICES, files))?
        .add_rules(path_beneath_rules([job.work()], work()))?
        .restrict_self()
        .context("Landlock is off in this kernel")?;
    ensure!(
        status.ruleset != RulesetStatus::NotEnforced && status.no_new_privs,
        "Landlock is off in this kernel"
    );
    Ok(())
}

/// Everything but devices.
fn work() -> BitFlags<AccessFs> {
    AccessFs::from_all(BEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev)
}
