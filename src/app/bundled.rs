//! The options with which a bundled server is started, for the checks of `gavel doctor`.

use std::path::Path;

use anyhow::{Context, anyhow};
use clap::builder::Resettable;
use clap::{Arg, Args, Command};
use secrecy::{ExposeSecret, SecretString};

use super::servers;
use crate::adapters::mcp::config::TransportConfig;
use crate::config::Config;

/// The options of the bundled server `name`, as its entry in `mcp.json` starts it. `None` if no entry starts it, or if it
/// is off, which its state says.
///
/// # Errors
/// The `mcp.json` or the options are invalid. The error has no value of an option: it can be a secret.
pub fn bundled<A: Args>(config: &Config, name: &str) -> anyhow::Result<Option<A>> {
    let servers = servers::read(config)?.servers;
    let entry = servers.into_iter().find_map(|server| match server.transport? {
        TransportConfig::Stdio { command, args, env, .. } => {
            let own = own_arguments(&command, &args, name)?;
            Some((args[own..].to_vec(), env))
        }
        TransportConfig::Http { .. } => None,
    });
    let parsed = entry.map(|(args, env)| options(name, &args, &env));
    parsed.transpose()
}

/// The options of a server that is started with these arguments and variables, and with nothing of this process's own.
fn options<A: Args>(name: &str, args: &[String], env: &[(String, SecretString)]) -> anyhow::Result<A> {
    let command = A::augment_args(Command::new("server").no_binary_name(true));
    let given: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| option(arg, args, env))
        .collect();
    let command = command.mut_args(|arg| arg.env(Resettable::Reset));
    let parsed = command.try_get_matches_from(args.iter().cloned().chain(given));
    let options = parsed.and_then(|matches| A::from_arg_matches(&matches));
    // clap's own text quotes the value.
    options
        .map_err(|error| anyhow!("{:?}", error.kind()))
        .with_context(|| format!("the options of the {name} server are invalid"))
}

/// `--option=value`, if its variable is set and no argument has it.
fn option(arg: &Arg, args: &[String], env: &[(String, SecretString)]) -> Option<String> {
    let (long, variable) = (arg.get_long()?, arg.get_env()?.to_str()?);
    let is_given = |argument: &String| argument.split('=').next() == Some(&format!("--{long}"));
    if args.iter().any(is_given) {
        return None;
    }
    let (_, value) = env.iter().find(|(name, _)| name == variable)?;
    Some(format!("--{long}={}", value.expose_secret()))
}

/// Number of arguments in `mcp-server NAME`.
const OWN_ARGUMENTS: usize = 2;

/// How many of an entry's arguments name the bundled server that it starts; `None` if it starts another one.
fn own_arguments(command: &str, args: &[String], name: &str) -> Option<usize> {
    let program = Path::new(command).file_name()?.to_str()?;
    if program == format!("gavel-mcp-{name}") {
        return Some(0);
    }
    let first = args.iter().map(String::as_str).take(OWN_ARGUMENTS);
    first.eq(["mcp-server", name]).then_some(OWN_ARGUMENTS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use gavel_mcp_github::Args;

    use super::*;

    fn env(given: &[(&str, &str)]) -> Vec<(String, SecretString)> {
        let pairs = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        pairs.collect()
    }

    #[test]
    fn a_bundled_server_is_known_by_its_command() {
        let args = ["mcp-server", "github", "--url", "x"].map(str::to_owned);
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "github"), Some(2));
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "docker"), None);
        assert_eq!(own_arguments("/usr/bin/gavel-mcp-docker", &[], "docker"), Some(0));
    }

    /// What doctor asks with is what the server is started with.
    #[test]
    fn an_argument_precedes_a_variable_as_in_the_server_itself() {
        let args = ["--timeout-seconds".to_owned(), "7".to_owned()];
        let env = env(&[
            ("GITHUB_TOKEN", "-t=x"),
            ("GITHUB_TIMEOUT_SECONDS", "9"),
            ("OTHER", "x"),
        ]);
        let options: Args = options("github", &args, &env).unwrap();
        assert_eq!(options.token.unwrap().expose(), "-t=x");
        assert_eq!(options.timeout_seconds.as_deref(), Some("7"));
        assert!(options.app_id.is_none());
    }

    #[test]
    fn an_error_does_not_quote_a_value() {
        let args = ["--tokn=canary".to_owned()];
        let error = options::<Args>("github", &args, &env(&[])).unwrap_err();
        assert!(!format!("{error:#}").contains("canary"), "{error:#}");
    }
}
