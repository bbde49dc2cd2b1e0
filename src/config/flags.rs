//! The settings that have a flag.

use std::collections::BTreeMap;

use clap::error::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::SETTINGS;

/// Settings that may be given on the command line. The other settings and every secret are given in the environment or
/// in gavel.toml: other users can see a command line.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, String>);

const HEADING: &str = "Settings (more in the environment and gavel.toml: gavel config --reference)";

impl Flags {
    /// The values that were given, by key.
    #[must_use]
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        self.0.clone()
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let args = SETTINGS.iter().filter_map(|setting| {
            let (flag, value) = setting.flag?;
            let (about, default) = (
                setting.about.trim_end_matches('.'),
                setting.default.unwrap_or(setting.absent),
            );
            let help = format!("{about} [env: {}] [default: {default}]", setting.variable());
            let long = flag.trim_start_matches('-');
            let arg = Arg::new(setting.key)
                .long(long)
                .value_name(value)
                .help(help)
                .help_heading(HEADING);
            Some(arg.global(true))
        });
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self> {
        let given = SETTINGS.iter().filter(|setting| setting.flag.is_some());
        let given = given.filter_map(|setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}
