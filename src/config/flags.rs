//! The settings that have a flag.

use std::collections::BTreeMap;

use clap::Args;

/// Settings that may be given on the command line. The other settings and every secret are given in the environment or
/// in
/// gavel.toml: other users can see a command line.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings (more in the environment and gavel.toml: gavel config --reference)")]
pub struct Flags {
    /// The configuration file [env: GAVEL_CONFIG] [default: gavel.toml, if there is one]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<String>,
    /// Where the HTTP API is served [env: GAVEL_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// System prompt, tool allowlist and limits [env: GAVEL_CONSTITUTION] [default: built in]
    #[arg(long, global = true, value_name = "PATH")]
    constitution: Option<String>,
    /// Directory of agent definitions [env: GAVEL_AGENTS] [default: agents, if it exists, else built in]
    #[arg(long, global = true, value_name = "PATH")]
    agents: Option<String>,
    /// The MCP servers whose tools are used [env: GAVEL_MCP_CONFIG] [default: built in]
    #[arg(long, global = true, value_name = "PATH")]
    mcp_config: Option<String>,
    /// The file with the accepted definitions of pinned tools [env: GAVEL_MCP_PINS] [default: gavel-pins.json]
    #[arg(long, global = true, value_name = "PATH")]
    mcp_pins: Option<String>,
    /// Rules for tool calls, with tests of them [env: GAVEL_POLICY] [default: no rules]
    #[arg(long, global = true, value_name = "PATH")]
    policy: Option<String>,
    /// Where records are kept [env: DATABASE_URL] [default: sqlite://gavel.db]
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// The model; demo is the built-in demo model [env: GEMINI_MODEL]
    #[arg(long, global = true, value_name = "NAME")]
    model: Option<String>,
}

impl Flags {
    /// The values that were given, by key.
    #[must_use]
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        let pairs = [
            (super::settings::CONFIG_FILE, &self.config),
            ("listen", &self.listen),
            ("constitution", &self.constitution),
            ("agents", &self.agents),
            ("mcp_config", &self.mcp_config),
            ("mcp_pins", &self.mcp_pins),
            ("policy.file", &self.policy),
            ("database_url", &self.database),
            ("gemini.model", &self.model),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;
    use crate::config::settings::SETTINGS;

    #[test]
    fn every_flag_of_the_list_exists_and_the_other_way_round() {
        let command = Flags::augment_args(Command::new("gavel"));
        let mut flags: Vec<_> = command
            .get_arguments()
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        let mut listed: Vec<_> = SETTINGS
            .iter()
            .filter_map(|setting| setting.flag.map(str::to_owned))
            .collect();
        flags.sort();
        listed.sort();
        assert_eq!(flags, listed);
    }

    #[test]
    fn the_help_of_a_flag_names_its_variable_and_default() {
        let command = Flags::augment_args(Command::new("gavel"));
        for setting in SETTINGS.iter().filter(|setting| setting.flag.is_some()) {
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_long().map(|long| format!("--{long}")).as_deref() == setting.flag);
            let help = arg.unwrap().get_help().unwrap().to_string();
            assert!(help.contains(setting.variable()), "{help}");
            // The default of the model depends on credentials.
            if setting.key != "gemini.model" {
                let default = format!("[default: {}]", setting.default.unwrap_or(setting.absent));
                assert!(help.contains(&default), "{default}: {help}");
            }
        }
    }

    #[test]
    fn every_flag_reaches_its_key() {
        let flags = SETTINGS.iter().filter_map(|setting| Some((setting.key, setting.flag?)));
        for (key, flag) in flags {
            #[derive(clap::Parser)]
            struct Line {
                #[command(flatten)]
                flags: Flags,
            }
            let line = <Line as clap::Parser>::parse_from(["gavel", flag, "x"]);
            assert_eq!(
                line.flags.values().into_iter().collect::<Vec<_>>(),
                [(key, "x".to_owned())]
            );
        }
    }
}
