//! Configuration: precedence, origins, and the text of every error.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gavel::adapters::gemini::{CredentialSource, Endpoint};
use gavel::adapters::store::ContentMode;
use gavel::config::{Auth, Config, ConfigErrors, Dotenv, JwtKeys, Provider, Resolved, SETTINGS, Sources};
use gavel::domain::budget::SessionLimits;
use gavel::domain::definition::ThinkingLevel;
use gavel_reading::{ReadError, Secrecy};
use proptest::prelude::*;
use secrecy::ExposeSecret;

const CANARY: &str = "canary-7f3a-that-is-long-enough-to-sign-with";

/// Scripted sources: flags and variables by name, the text of the file, files that can be read.
#[derive(Default)]
struct Given<'a> {
    flags: &'a [(&'static str, &'a str)],
    environment: &'a [(&'a str, &'a str)],
    dotenv: &'a str,
    file: Option<&'a str>,
    readable: &'a [(&'a str, &'a str)],
}

impl Given<'_> {
    fn resolve(&self) -> Result<Resolved, Vec<ReadError>> {
        let read_file = |path: &Path| {
            let found = self.readable.iter().find(|(name, _)| Path::new(name) == path);
            found
                .map(|(_, text)| (*text).to_owned())
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Config::resolve(Sources {
            flags: self
                .flags
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect(),
            environment: self.environment.iter().map(own).collect(),
            dotenv: Dotenv::parse(self.dotenv).map_err(|error| vec![error])?,
            file: self.file.map(|text| (PathBuf::from("etc/gavel.toml"), text.to_owned())),
            read_file: &read_file,
        })
    }

    fn config(&self) -> Config {
        self.resolved().config
    }

    fn resolved(&self) -> Resolved {
        self.resolve()
            .unwrap_or_else(|errors| panic!("{}", ConfigErrors(errors)))
    }

    fn refusal(&self) -> String {
        ConfigErrors(self.resolve().unwrap_err()).to_string()
    }
}

fn env<'a>(environment: &'a [(&'a str, &'a str)]) -> Given<'a> {
    Given {
        environment,
        ..Given::default()
    }
}

fn toml(text: &str) -> Given<'_> {
    Given {
        file: Some(text),
        ..Given::default()
    }
}

fn origin(resolved: &Resolved, key: &str) -> String {
    resolved
        .origins
        .iter()
        .find(|effective| effective.key == key)
        .unwrap()
        .origin
        .to_string()
}

fn shown(resolved: &Resolved) -> String {
    let line = |effective: &gavel::config::Effective| {
        let value = effective.value.as_deref().unwrap_or("-");
        format!("{} = {value}  ({})\n", effective.key, effective.origin)
    };
    resolved.origins.iter().map(line).collect()
}

#[test]
fn without_settings_gavel_serves_this_machine_with_the_demo_model() {
    let resolved = Given::default().resolved();
    let config = &resolved.config;
    assert_eq!(config.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(config.database_url.expose_secret(), "sqlite://gavel.db");
    assert!(matches!(config.model.provider, Provider::Demo { by_name: false }));
    assert_eq!(config.model.name, "demo");
    assert!(matches!(config.auth, Auth::None));
    assert!(matches!(config.records.0, ContentMode::Full));
    assert_eq!(
        (config.rate_limit.per_minute.get(), config.rate_limit.burst.get()),
        (60, 20)
    );
    assert_eq!(
        (config.max_in_flight, config.drain_seconds),
        (1024, Duration::from_secs(30))
    );
    assert_eq!(resolved.warnings, [""; 0]);
    insta::assert_snapshot!(shown(&resolved));
}

#[test]
fn precedence_is_flag_environment_dotenv_file_default() {
    let file = Some("\nlisten = \"127.0.0.1:3\"\n");
    let environment = &[("GAVEL_LISTEN", "127.0.0.1:2")];
    let dotenv = "GAVEL_LISTEN=127.0.0.1:4\n";
    let flags = &[("listen", "127.0.0.1:1")];
    let port = |given: Given<'_>| {
        let resolved = given.resolved();
        (resolved.config.listen.port(), origin(&resolved, "listen"))
    };
    let all = Given {
        flags,
        environment,
        dotenv,
        file,
        readable: &[],
    };
    assert_eq!(port(all), (1, "flag --listen".to_owned()));
    let no_flag = Given {
        environment,
        dotenv,
        file,
        ..Given::default()
    };
    assert_eq!(port(no_flag), (2, "environment GAVEL_LISTEN".to_owned()));
    let no_variable = Given {
        environment: &[("GAVEL_LISTEN", "")],
        dotenv,
        file,
        ..Given::default()
    };
    assert_eq!(port(no_variable), (4, ".env GAVEL_LISTEN".to_owned()));
    assert_eq!(
        port(Given {
            file,
            ..Given::default()
        }),
        (3, "etc/gavel.toml:2".to_owned())
    );
    assert_eq!(port(Given::default()), (8080, "default".to_owned()));
}

/// Every common syntax of a dotenv file.
#[test]
fn a_dotenv_file_is_read_as_other_programs_read_it() {
    for (text, expected) in [
        ("GEMINI_API_KEY=k", "k"),
        ("\u{feff}GEMINI_API_KEY=k\r\n", "k"),
        ("# a comment\n\nexport GEMINI_API_KEY = k # why", "k"),
        ("GEMINI_API_KEY=\"k l\"", "k l"),
        ("GEMINI_API_KEY='k$l'", "k$l"),
        ("PART=k\nGEMINI_API_KEY=\"${PART}l\"", "kl"),
        ("GEMINI_API_KEY=first\nGEMINI_API_KEY=last", "last"),
        ("GEMINI_API_KEY_FILE=key", "from the file"),
    ] {
        let config = Given {
            dotenv: text,
            readable: &[("key", "from the file\n")],
            ..Given::default()
        };
        match config.config().model.provider {
            Provider::Gemini(Endpoint::Developer { api_key, .. }) => {
                assert_eq!(api_key.expose_secret(), expected, "{text}")
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// The environment and the dotenv file are two layers: a secret in a file from one does not conflict with the other.
#[test]
fn a_secret_in_the_environment_takes_precedence_over_its_file_in_dotenv() {
    let config = Given {
        environment: &[("GEMINI_API_KEY", "k")],
        dotenv: "GEMINI_API_KEY_FILE=nowhere-to-be-found",
        readable: &[("nowhere-to-be-found", "l")],
        ..Given::default()
    };
    assert!(
        matches!(config.config().model.provider, Provider::Gemini(Endpoint::Developer { api_key, .. }) if api_key.expose_secret() == "k")
    );
}

#[test]
fn a_line_of_dotenv_that_cannot_be_read_is_named_and_not_shown() {
    for text in [
        format!("GAVEL_LISTEN=127.0.0.1:1\n{CANARY}\n"),
        format!("GAVEL_LISTEN=127.0.0.1:1\nGEMINI_API_KEY='{CANARY}\n"),
        format!("GAVEL_LISTEN=127.0.0.1:1\nGEMINI_API_KEY={CANARY} and more\n"),
    ] {
        let given = Given {
            dotenv: &text,
            ..Given::default()
        };
        let refusal = given.refusal();
        assert!(
            refusal.contains(".env:2: ") && refusal.contains("NAME=value"),
            "{refusal}"
        );
        assert!(!refusal.contains(CANARY), "{refusal}");
    }
}

#[test]
fn an_invalid_or_unknown_variable_of_dotenv_is_reported_with_its_location() {
    let invalid = Given {
        dotenv: "GAVEL_LISTEN=here",
        ..Given::default()
    };
    assert!(invalid.refusal().contains(".env GAVEL_LISTEN"), "{}", invalid.refusal());
    let unknown = Given {
        dotenv: "GAVEL_LISTN=127.0.0.1:1",
        ..Given::default()
    };
    assert_eq!(
        unknown.resolved().warnings,
        [".env GAVEL_LISTN: gavel has no such setting; did you mean GAVEL_LISTEN?"]
    );
}

/// A value may be a key.
#[test]
fn the_values_of_dotenv_do_not_print() {
    let text = format!("GEMINI_API_KEY={CANARY}\nFILES_ROOT={CANARY}");
    let given = Given {
        dotenv: &text,
        ..Given::default()
    };
    let resolved = given.resolved();
    assert!(!format!("{resolved:?}").contains(CANARY));
    assert_eq!(resolved.config.dotenv.variable("FILES_ROOT").as_deref(), Some(CANARY));
}

#[test]
fn a_variable_that_is_empty_counts_as_not_set() {
    let config = env(&[("GEMINI_API_KEY", ""), ("GAVEL_LISTEN", ""), ("DATABASE_URL_FILE", "")]).config();
    assert!(matches!(config.model.provider, Provider::Demo { by_name: false }));
    assert_eq!(config.listen.port(), 8080);
}

#[test]
fn a_relative_path_in_the_file_is_relative_to_the_file() {
    let readable: &[(&str, &str)] = &[("etc/me.md", ""), ("me.md", "")];
    let in_file = Given {
        file: Some("constitution = \"me.md\""),
        readable,
        ..Given::default()
    };
    assert_eq!(in_file.config().constitution, Some(PathBuf::from("etc/me.md")));
    let not_there_yet = toml("mcp_pins = \"pins.json\"");
    assert_eq!(not_there_yet.config().mcp_pins, PathBuf::from("etc/pins.json"));
    let in_environment = Given {
        environment: &[("GAVEL_CONSTITUTION", "me.md")],
        readable,
        ..Given::default()
    };
    assert_eq!(in_environment.config().constitution, Some(PathBuf::from("me.md")));
}

#[test]
fn project_and_location_mean_vertex_even_with_a_key() {
    let given = env(&[
        ("VERTEX_AI_PROJECT_ID", "p"),
        ("VERTEX_AI_LOCATION", "eu"),
        ("GEMINI_API_KEY", "k"),
        ("HOME", "/h"),
    ]);
    match given.config().model.provider {
        Provider::Gemini(Endpoint::Vertex {
            project,
            location,
            endpoint,
            credentials: CredentialSource::Default(sources),
        }) => {
            assert_eq!((project.as_str(), location.as_str(), endpoint), ("p", "eu", None));
            let file = Some(Path::new("/h/.config/gcloud/application_default_credentials.json"));
            assert_eq!(sources.gcloud_file.as_deref(), file);
        }
        other => panic!("{other:?}"),
    }
}

/// X-1: key and Vertex AI may both be configured: one is the default, and definitions may name the other.
#[test]
fn the_other_provider_is_available_if_both_are_configured() {
    let vertex = [("VERTEX_AI_PROJECT_ID", "p"), ("VERTEX_AI_LOCATION", "eu")];
    let key = [("GEMINI_API_KEY", "k"), ("GEMINI_BASE_URL", "http://127.0.0.1:9/")];
    let express = [("VERTEX_AI_API_KEY", "v")];
    let both = |one: &[(&str, &str)], other: &[(&str, &str)]| {
        let all: Vec<_> = one.iter().chain(other).copied().collect();
        env(&all).config().model
    };
    for default in [&vertex[..], &express] {
        let model = both(default, &key);
        assert!(
            matches!(
                model.provider,
                Provider::Gemini(Endpoint::Vertex { .. } | Endpoint::VertexExpress { .. })
            ),
            "{model:?}"
        );
        match model.other {
            Some(Endpoint::Developer { api_key, base_url }) => {
                assert_eq!(
                    (api_key.expose_secret(), base_url.as_deref()),
                    ("k", Some("http://127.0.0.1:9"))
                );
            }
            other => panic!("{other:?}"),
        }
    }
    for alone in [&vertex[..], &key, &express] {
        assert!(both(alone, &[]).other.is_none(), "{alone:?}");
    }
    let demo = both(&vertex, &[("GEMINI_API_KEY", "k"), ("GEMINI_MODEL", "demo")]);
    assert!(matches!(demo.provider, Provider::Demo { by_name: true }) && demo.other.is_none());
}

#[test]
fn the_thinking_level_of_the_environment_is_one_of_five() {
    let key = ("GEMINI_API_KEY", "k");
    for (value, level) in [
        ("xhigh", Some(ThinkingLevel::Xhigh)),
        ("minimal", Some(ThinkingLevel::Minimal)),
        ("", None),
    ] {
        let config = env(&[key, ("GEMINI_THINKING_LEVEL", value)]).config();
        assert_eq!(config.model.thinking_level, level, "{value}");
    }
    let refusal = env(&[key, ("GEMINI_THINKING_LEVEL", "most")]).refusal();
    assert!(refusal.contains("minimal, low, medium, high or xhigh"), "{refusal}");
}

/// R-10: rows of the logs are never deleted before the floor that a law or a contract sets.
#[test]
fn rows_are_kept_at_least_as_long_as_the_floor() {
    assert_eq!(Given::default().config().records.1, None, "forever");
    let refusal = env(&[("GAVEL_RECORDS_KEEP_DAYS", "183")]).refusal();
    assert!(refusal.contains("at least records.keep_at_least_days"), "{refusal}");
    for (days, floor) in [("184", "184"), ("30", "30")] {
        let given = [
            ("GAVEL_RECORDS_KEEP_DAYS", days),
            ("GAVEL_RECORDS_KEEP_AT_LEAST_DAYS", floor),
        ];
        let kept = env(&given).config().records.1.unwrap();
        assert_eq!((kept.as_secs() / 86_400).to_string(), days);
    }
}

#[test]
fn a_key_without_vertex_selects_the_developer_api_with_a_current_flash_model() {
    for variable in ["GEMINI_API_KEY", "GOOGLE_API_KEY"] {
        let config = env(&[(variable, "k"), ("GEMINI_BASE_URL", "http://127.0.0.1:9/")]).config();
        match config.model.provider {
            Provider::Gemini(Endpoint::Developer { api_key, base_url }) => {
                assert_eq!(api_key.expose_secret(), "k");
                assert_eq!(base_url.as_deref(), Some("http://127.0.0.1:9"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(config.model.name, "gemini-3.8-flash");
    }
    let express = env(&[("VERTEX_AI_API_KEY", "k")]).config();
    assert!(matches!(
        express.model.provider,
        Provider::Gemini(Endpoint::VertexExpress { .. })
    ));
}

#[test]
fn two_different_keys_cause_a_warning() {
    let same = env(&[("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "a")]).resolved();
    assert_eq!(same.warnings, [""; 0]);
    let differ = env(&[("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "b")]).resolved();
    assert_eq!(
        differ.warnings,
        ["GEMINI_API_KEY and GOOGLE_API_KEY are both set and differ; GEMINI_API_KEY is used"]
    );
}

#[test]
fn demo_by_name_overrides_all_credentials() {
    let given = env(&[
        ("GEMINI_MODEL", "demo"),
        ("VERTEX_AI_PROJECT_ID", "p"),
        ("VERTEX_AI_LOCATION", "eu"),
    ]);
    assert!(matches!(
        given.config().model.provider,
        Provider::Demo { by_name: true }
    ));
}

#[test]
fn the_demo_model_never_replaces_a_requested_real_one() {
    insta::assert_snapshot!(env(&[("GEMINI_MODEL", "gemini-3.8-flash")]).refusal());
    insta::assert_snapshot!(env(&[("GEMINI_BASE_URL", "http://127.0.0.1:9")]).refusal());
}

#[test]
fn outside_loopback_callers_and_the_demo_model_must_be_configured() {
    insta::assert_snapshot!(env(&[("GAVEL_LISTEN", "0.0.0.0:80")]).refusal());
    let keys = format!(r#"[{{"name": "app", "sha256": "{}"}}]"#, "ab".repeat(32));
    let named = [
        ("GAVEL_LISTEN", "0.0.0.0:80"),
        ("GEMINI_MODEL", "demo"),
        ("GAVEL_AUTH_MODE", "api_key"),
        ("GAVEL_AUTH_KEYS", &keys),
    ];
    let config = env(&named).config();
    assert!(matches!(config.model.provider, Provider::Demo { by_name: true }));
}

#[test]
fn incomplete_vertex_settings_are_refused_and_the_missing_part_is_named() {
    insta::assert_snapshot!(env(&[("VERTEX_AI_PROJECT_ID", "p"), ("GEMINI_API_KEY", "k")]).refusal());
    insta::assert_snapshot!(toml("[vertex]\nlocation = \"eu\"").refusal());
}

#[test]
fn all_errors_are_reported_at_once_with_location_and_allowed_values() {
    let file = r#"
workers = 0
max_in_flight = "many"
drain_seconds = -1
[rate_limit]
per_minute = 1.5
burst = []
[records]
content = "some"
[log]
format = "xml"
[model]
idle_seconds = 2024-01-01
"#;
    let environment = &[
        ("GAVEL_LISTEN", "8080"),
        ("DATABASE_URL", "mysql://me:pw@db/x"),
        ("RUST_LOG", "a=b=c"),
    ];
    let flags = &[("constitution", "missing.md")];
    insta::assert_snapshot!(
        Given {
            dotenv: "",
            flags,
            environment,
            file: Some(file),
            readable: &[]
        }
        .refusal()
    );
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    let file = "listn = \"x\"\napi_key = \"k\"\ncolour = 1\nrecords = 1\nconfig = \"x\"\n[rate_limit]\nper_minut = 5\n[auth.jwt]\nisuer = \"x\"\n";
    insta::assert_snapshot!(toml(file).refusal());
}

#[test]
fn an_error_in_the_toml_syntax_names_the_line() {
    insta::assert_snapshot!(toml("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\n").refusal());
    insta::assert_snapshot!(toml("\n\n[records\n").refusal());
}

#[test]
fn an_unknown_gavel_variable_causes_only_a_warning() {
    let resolved = env(&[
        ("GAVEL_LISTN", "x"),
        ("GAVEL_COLOUR", "x"),
        ("GAVEL_SHARED", "x"),
        ("OTHER", "x"),
    ])
    .resolved();
    insta::assert_snapshot!(resolved.warnings.join("\n"));
}

#[test]
fn a_secret_may_be_in_a_separate_file() {
    let readable = &[("/run/key", "k-1\n"), ("etc/key", "k-2\r\n")];
    let key = |given: Given<'_>| {
        let resolved = given.resolved();
        match &resolved.config.model.provider {
            Provider::Gemini(Endpoint::Developer { api_key, .. }) => {
                (api_key.expose_secret().to_owned(), origin(&resolved, "gemini.api_key"))
            }
            other => panic!("{other:?}"),
        }
    };
    let by_variable = Given {
        environment: &[("GEMINI_API_KEY_FILE", "/run/key")],
        readable,
        ..Given::default()
    };
    assert_eq!(
        key(by_variable),
        (
            "k-1".to_owned(),
            "/run/key, named by environment GEMINI_API_KEY_FILE".to_owned()
        )
    );
    let by_key = Given {
        file: Some("[gemini]\napi_key_file = \"key\""),
        readable,
        ..Given::default()
    };
    assert_eq!(
        key(by_key),
        ("k-2".to_owned(), "etc/key, named by etc/gavel.toml:2".to_owned())
    );
}

#[test]
fn a_secret_given_twice_or_unreadable_is_refused() {
    let environment = &[
        ("GEMINI_API_KEY", CANARY),
        ("GEMINI_API_KEY_FILE", "/run/key"),
        ("GITHUB_TOKEN_FILE", "/run/none"),
        ("GAVEL_RECORDS_KEY_FILE", "/run/empty"),
    ];
    let file = Some("[auth.jwt]\nsecret = \"x\"\nsecret_file = \"y\"\n[otel]\nheaders_file = 3\n");
    let refusal = Given {
        dotenv: "",
        environment,
        file,
        readable: &[("/run/empty", "\n")],
        flags: &[],
    }
    .refusal();
    assert!(!refusal.contains(CANARY));
    insta::assert_snapshot!(refusal);
}

#[test]
fn api_keys_come_from_the_file_or_as_json_from_the_environment() {
    let hash = "0a".repeat(32);
    let file = format!(
        "[auth]\nmode = \"api_key\"\n[[auth.keys]]\nname = \"app\"\nsha256 = \"{hash}\"\ntenant = \"acme\"\nroles = [\"analyst\"]\n\
         user = \"ann\"\n"
    );
    let json = format!(r#"[{{"name":"app","sha256":"{hash}","tenant":"acme","roles":["analyst"],"user":"ann"}}]"#);
    let variables = [("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", json.as_str())];
    for given in [toml(&file), env(&variables)] {
        match given.config().auth {
            Auth::ApiKeys(keys) => {
                assert_eq!(keys.len(), 1);
                assert_eq!(
                    (keys[0].name.as_str(), keys[0].sha256, keys[0].tenant.as_str()),
                    ("app", [10; 32], "acme")
                );
                assert_eq!(keys[0].roles, ["analyst"]);
                assert_eq!(keys[0].user.as_ref().map(|user| user.as_str()), Some("ann"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_invalid_api_key_entry_is_reported_by_line_and_never_printed() {
    let hash = "0a".repeat(32);
    let file = format!(
        "[auth]\nmode = \"api_key\"\n[[auth.keys]]\nname = \"app\"\nsha256 = \"{CANARY}\"\n[[auth.keys]]\nsha = \"{hash}\"\n\
         roles = \"analyst\"\n[[auth.keys]]\nname = \"\"\nsha256 = \"{hash}\"\ntenant = \"a\\u0000\"\n"
    );
    let refusal = toml(&file).refusal();
    assert!(!refusal.contains(CANARY));
    insta::assert_snapshot!(refusal);
    let twice = format!(
        "[auth]\nmode = \"api_key\"\nkeys = [\n {{name = \"a\", sha256 = \"{hash}\"}},\n {{name = \"a\", sha256 = \"{hash}\", roles = [\"aproover\"]}}]"
    );
    insta::assert_snapshot!(toml(&twice).refusal());
    insta::assert_snapshot!(env(&[("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", "app:abc")]).refusal());
    insta::assert_snapshot!(env(&[("GAVEL_AUTH_MODE", "api_key")]).refusal());
}

#[test]
fn tokens_need_an_issuer_an_audience_and_one_kind_of_key() {
    insta::assert_snapshot!(env(&[("GAVEL_AUTH_MODE", "jwt")]).refusal());
    let both = "[auth]\nmode = \"jwt\"\n[auth.jwt]\nissuer = \"i\"\naudience = \"a\"\njwks_url = \"https://i/jwks\"\nsecret = \"s\"\n";
    insta::assert_snapshot!(toml(both).refusal());
    insta::assert_snapshot!(toml(&both.replace("secret = \"s\"", "").replace("https", "http")).refusal());
    let short = both.replace("jwks_url = \"https://i/jwks\"\n", "");
    insta::assert_snapshot!(toml(&short).refusal());
    let right = short.replace("\"s\"", &format!("{CANARY:?}"));
    match toml(&right).config().auth {
        Auth::Jwt(jwt) => {
            assert!(matches!(jwt.keys, JwtKeys::Secret(secret) if secret.expose_secret() == CANARY));
            assert_eq!((jwt.tenant_claim, jwt.roles_claim.as_str()), (None, "roles"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_of_an_unused_mode_cause_a_warning() {
    let keys = format!(
        r#"[{{"name": "app", "sha256": "{}", "roles": ["aproover"]}}]"#,
        "ab".repeat(32)
    );
    let given = [
        ("GAVEL_AUTH_KEYS", keys.as_str()),
        ("GAVEL_AUTH_JWT_ISSUER", "i"),
        ("GAVEL_RECORDS_KEY", CANARY),
    ];
    insta::assert_snapshot!(env(&given).resolved().warnings.join("\n"));
}

/// One service token must not lend every user all that it can see, so an invalid pattern stops the start.
#[test]
fn repositories_of_planning_are_patterns_and_each_invalid_one_is_named() {
    let file = "[planning]\nrepositories = [\n \"acme/*\",\n \"t2:other/one\",\n]\nmax_hours = 24\n";
    let planning = toml(file).config().planning;
    assert_eq!(
        (planning.repositories.unwrap().len(), planning.rules.max_hours),
        (2, 24)
    );
    let sessions = SessionLimits::new(planning.sessions, planning.sessions_per_user);
    assert_eq!(sessions, SessionLimits::default());
    let from_environment = env(&[("GAVEL_PLANNING_REPOSITORIES", "acme/*, t2:other/one")]).config();
    assert_eq!(from_environment.planning.repositories.unwrap().len(), 2);
    let invalid = toml("[planning]\nrepositories = [\n \"acme\",\n \"acme/x\",\n \"a b/c\",\n]\n").refusal();
    for (line, value) in [(3, "acme"), (5, "a b/c")] {
        assert!(
            invalid.contains(&format!("etc/gavel.toml:{line}: planning.repositories[")),
            "{invalid}"
        );
        assert!(
            invalid.contains(&format!("found {value:?}; allowed: OWNER/REPO")),
            "{invalid}"
        );
    }
    let number = toml("[planning]\nrepositories = 7\n").refusal();
    assert!(number.contains("allowed: a list of OWNER/REPO"), "{number}");
}

/// A value that would let a plan write anywhere, or never end, stops the start.
#[test]
fn the_limits_of_the_work_on_a_plan_are_read_and_checked() {
    let file = "[planning]\nbranch_prefix = \"bot/\"\nmax_steps_per_task = 60\nmax_steps = 600\nmax_tokens = 2000000\n\
                context_tokens = 50000\nmodel_patience = \"90s\"\n";
    let planning = toml(file).config().planning;
    assert_eq!(planning.rules.branch_prefix, "bot/");
    assert_eq!(
        (planning.limits.max_steps_per_task, planning.limits.max_steps),
        (60, 600)
    );
    assert_eq!(
        (planning.limits.max_tokens, planning.limits.context_tokens),
        (Some(2_000_000), 50_000)
    );
    assert_eq!(planning.limits.model_patience.as_secs(), 90);
    assert_eq!(Given::default().config().planning.limits.max_tokens, None);
    for (setting, allowed) in [
        ("branch_prefix = \"\"", "allowed: letters, digits"),
        ("branch_prefix = \"a..b\"", "allowed: letters, digits"),
        ("max_steps = 0", "allowed: a whole number from 1"),
        ("max_tokens = 5", "allowed: a whole number from 10000"),
        ("model_patience = \"15\"", "such as 45s, 15m or 2h"),
    ] {
        let refusal = toml(&format!("[planning]\n{setting}\n")).refusal();
        assert!(
            refusal.contains("etc/gavel.toml:2") && refusal.contains(allowed),
            "{setting}: {refusal}"
        );
    }
}

/// The address is compared with those that users give, so it has nothing but scheme, host and port.
#[test]
fn the_address_of_github_has_no_path() {
    assert_eq!(Given::default().config().github.url.as_str(), "https://github.com/");
    let own = env(&[("GITHUB_URL", "https://github.example.org/")]).config();
    assert_eq!(own.github.url.as_str(), "https://github.example.org/");
    for invalid in [
        "github.com",
        "https://ann:pw@github.com",
        "https://github.com/acme",
        "ssh://github.com",
    ] {
        assert!(
            env(&[("GITHUB_URL", invalid)]).refusal().contains("github.url"),
            "{invalid}"
        );
    }
}

#[test]
fn hashed_records_need_a_key() {
    insta::assert_snapshot!(env(&[("GAVEL_RECORDS_CONTENT", "hash")]).refusal());
    insta::assert_snapshot!(env(&[("GAVEL_RECORDS_CONTENT", "hash"), ("GAVEL_RECORDS_KEY", "short")]).refusal());
    let config = env(&[("GAVEL_RECORDS_CONTENT", "hash"), ("GAVEL_RECORDS_KEY", CANARY)]).config();
    assert!(matches!(config.records.0, ContentMode::Hash(_)));
}

/// The operator learns at the start which level the model does not know.
#[test]
fn a_level_that_the_configured_model_does_not_know_causes_a_warning() {
    let warnings = |model: &'static str, level: &'static str| {
        let given = [
            ("GEMINI_API_KEY", "k"),
            ("GEMINI_MODEL", model),
            ("GEMINI_THINKING_LEVEL", level),
        ];
        env(&given).resolved().warnings
    };
    assert_eq!(
        warnings("gemini-3.8-flash", "xhigh"),
        [
            "gemini.thinking_level = xhigh is no level of gemini-3.8-flash, so the nearest one is sent; allowed: low, medium, high"
        ]
    );
    for (model, level) in [
        ("gemini-4-neon", "xhigh"),
        ("gemini-2.5-pro", "xhigh"),
        ("demo", "xhigh"),
    ] {
        assert_eq!(warnings(model, level), [""; 0], "{model}");
    }
}

#[test]
fn plain_http_to_another_machine_causes_a_warning() {
    let resolved = env(&[("GEMINI_API_KEY", "k"), ("GEMINI_BASE_URL", "http://gateway:80")]).resolved();
    insta::assert_snapshot!(resolved.warnings.join("\n"));
}

/// A database on another machine receives passwords and users' texts.
#[test]
fn a_remote_database_without_tls_causes_a_warning() {
    let resolved = env(&[("DATABASE_URL", "postgres://u:pw-canary@db/gavel")]).resolved();
    assert_eq!(resolved.warnings.len(), 1, "{:?}", resolved.warnings);
    assert!(
        resolved.warnings[0].contains("sslmode=require"),
        "{:?}",
        resolved.warnings
    );
    assert!(!resolved.warnings[0].contains("pw-canary"));
    let fine = env(&[("DATABASE_URL", "postgres://u:p@db/gavel?sslmode=require")]).resolved();
    assert_eq!(fine.warnings, [""; 0]);
}

/// A value that the collector or Google would reject stops the start, with its location.
#[test]
fn headers_and_names_that_cannot_be_sent_are_refused() {
    for (name, value, key) in [
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c", "otel.headers"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ax: y", "otel.headers"),
        ("VERTEX_AI_LOCATION", "europe west4", "vertex.location"),
        ("VERTEX_AI_PROJECT_ID", "a/b", "vertex.project_id"),
    ] {
        let refusal = env(&[(name, value)]).refusal();
        assert!(refusal.contains(key) && refusal.contains(name), "{refusal}");
    }
}

#[test]
fn traces_are_off_until_a_collector_is_named() {
    assert!(Given::default().config().traces.is_none());
    let given = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c = d=e, authorization=Basic%20x"),
    ];
    let traces = env(&given).config().traces.unwrap();
    let headers: Vec<_> = traces
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    assert_eq!(headers, [("a", "b"), ("c", "d=e"), ("authorization", "Basic x")]);
    assert_eq!(traces.service_name, "gavel");
    assert_eq!(traces.traces_url.as_str(), "http://localhost:4318/v1/traces");
    let below = env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/otlp/")]).config();
    assert_eq!(
        below.traces.unwrap().traces_url.as_str(),
        "https://collector/otlp/v1/traces"
    );
    let whole = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://b/t"),
    ];
    assert_eq!(env(&whole).config().traces.unwrap().traces_url.as_str(), "https://b/t");
}

#[test]
fn a_password_in_an_address_is_not_printed_back() {
    let refusal = env(&[("GEMINI_BASE_URL", "https://me:pw-canary@gateway/v1")]).refusal();
    assert!(refusal.contains("https://me:********@gateway/v1"), "{refusal}");
}

/// Promise: secrets never reach a log, an error, a trace or a row.
#[test]
fn no_secret_is_shown_by_a_value_an_origin_or_a_debug_print() {
    let secrets: Vec<_> = SETTINGS
        .iter()
        .filter(|setting| setting.secrecy == Secrecy::Secret)
        .collect();
    assert!(secrets.len() >= 6);
    let mut variables: BTreeMap<&str, String> = secrets
        .iter()
        .map(|setting| (setting.variable(), CANARY.to_owned()))
        .collect();
    variables.insert("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={CANARY}"));
    variables.insert("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318".to_owned());
    variables.insert("DATABASE_URL", format!("postgres://me:{CANARY}@db/gavel"));
    variables.insert("GAVEL_RECORDS_CONTENT", "hash".to_owned());
    let given: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let resolved = env(&given).resolved();
    let printed = format!(
        "{resolved:?} {} {}",
        shown(&resolved),
        serde_json::to_string(&resolved.origins).unwrap()
    );
    assert!(!printed.contains(CANARY), "{printed}");
    assert!(printed.contains("postgres://me:********@db/gavel"));
}

#[test]
fn the_reference_names_every_setting() {
    let page = gavel::config::reference();
    for setting in SETTINGS.iter() {
        assert!(
            page.contains(&format!("| `{}` | `{}`", setting.key, setting.variable())),
            "{}",
            setting.key
        );
    }
}

/// The table in the documentation equals the output of `gavel config --reference`.
#[test]
fn the_documentation_has_the_reference_as_it_is() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/configuration.md")).unwrap();
    assert!(
        page.contains(&gavel::config::reference()),
        "docs/reference/configuration.md: put in `gavel config --reference`"
    );
}

/// Every example in the documentation is valid in every key and value.
#[test]
fn the_examples_in_the_documentation_are_accepted() {
    let pages = ["authenticate", "github-and-containers"].map(|page| format!("docs/how-to/{page}.md"));
    let read = |page| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let text = pages.map(read).concat();
    let examples: Vec<_> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() >= 4);
    for example in examples {
        let example = example.replace("sha256 = \"…\"", &format!("sha256 = {:?}", "ab".repeat(32)));
        // An entry alone belongs to the mode that uses it.
        let mode = if example.starts_with("[[auth.keys]]") {
            "[auth]\nmode = \"api_key\"\n\n"
        } else {
            ""
        };
        let example = format!("{mode}{example}");
        assert_eq!(toml(&example).resolved().warnings, [""; 0], "{example}");
    }
}

fn any_environment() -> impl Strategy<Value = Vec<(String, String)>> {
    let names: Vec<String> = SETTINGS
        .iter()
        .flat_map(|setting| {
            setting
                .environment
                .iter()
                .flat_map(|name| [name.clone(), format!("{name}_FILE")])
        })
        .collect();
    let value = prop_oneof![
        "\\PC{0,12}",
        Just("1".to_owned()),
        Just("demo".to_owned()),
        Just("jwt".to_owned()),
        Just("api_key".to_owned()),
        Just("hash".to_owned()),
        Just("https://a.example".to_owned()),
        Just(CANARY.to_owned()),
    ];
    proptest::collection::vec((proptest::sample::select(names), value), 0..12)
}

proptest! {
    /// Any input gives a configuration, or an error that explains why there is none.
    #[test]
    fn every_environment_gives_a_configuration_or_an_explained_error(environment in any_environment()) {
        let borrowed: Vec<_> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match env(&borrowed).resolve() {
            Ok(resolved) => prop_assert_eq!(resolved.origins.len(), SETTINGS.len()),
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    prop_assert!(!error.file.is_empty() || error.allowed.contains("environment") || error.allowed.contains("GEMINI_API_KEY"), "{}", error);
                }
            }
        }
    }

    /// No file content causes a panic, and every error names a line of the file.
    #[test]
    fn every_file_gives_a_configuration_or_errors_with_lines(text in "([a-z_]{1,8}( = (1|\"x\"|\\[1\\]|\\{a = 1\\})|\\.mode = true)?\n|\\[\\[?[a-z.]{1,9}\\]\\]?\n){0,6}") {
        if let Err(errors) = toml(&text).resolve() {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(error.file == "etc/gavel.toml" && error.line.is_some());
            }
        }
    }
}

#[test]
fn precedence_is_the_same_for_every_setting_with_a_flag() {
    let given = |combination: u8, n: u8| combination & (1 << n) != 0;
    for setting in SETTINGS
        .iter()
        .filter(|setting| setting.flag.is_some() && setting.key != "config")
    {
        for combination in 0..8 {
            let value = |n: u16| match setting.key {
                "listen" => format!("127.0.0.1:{n}"),
                "database_url" => format!("sqlite://{n}.db"),
                "gemini.model" => format!("demo{n}"),
                _ => format!("/{n}"),
            };
            let (one, two, three) = (value(1), value(2), value(3));
            let flags = [(setting.key, one.as_str())];
            let mut environment = vec![("GEMINI_API_KEY", "k")];
            environment.extend(given(combination, 1).then_some((setting.variable(), two.as_str())));
            let text = format!("{} = {three:?}", setting.key);
            let resolved = Given {
                dotenv: "",
                flags: if given(combination, 0) { &flags } else { &[] },
                environment: &environment,
                file: given(combination, 2).then_some(text.as_str()),
                readable: &[("/1", ""), ("/2", ""), ("/3", "")],
            }
            .resolved();
            let expected = match combination {
                0 => setting.default.map(str::to_owned),
                4 => Some(three),
                _ if given(combination, 0) => Some(one),
                _ => Some(two),
            };
            let effective = resolved
                .origins
                .iter()
                .find(|effective| effective.key == setting.key)
                .unwrap();
            assert_eq!(effective.value, expected, "{} {combination:03b}", setting.key);
        }
    }
}
