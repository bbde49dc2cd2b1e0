//! Settings, help, levels, and what the server says of itself.

use std::path::Path;
use std::process::{Output, Stdio};

use gavel_mcp_shell::{Args, Launcher, Level, probe};
use serde_json::Value;

use crate::harness::{PROGRAM, World, is_root, not_checked};

async fn output(world: &World) -> Output {
    world
        .program()
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the program runs")
}

#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    for (name, value, words) in [
        ("SHELL_SANDBOX", "none", "auto, bwrap, landlock or host"),
        ("SHELL_NETWORK", "yes", "off or on"),
        ("SHELL_ROOT", "relative", "absolute"),
        ("SHELL_ROOT", "/usr/shell", "below /usr"),
        ("SHELL_READ_ONLY", "opt", "not an absolute path"),
        ("SHELL_READ_ONLY", "/no/such/place", "cannot be read"),
        ("SHELL_READ_ONLY", "/", "in each other"),
        ("SHELL_READ_ONLY", "/proc", "cannot be shared"),
        ("SHELL_TIMEOUT_SECONDS", "601", "from 1 to 600"),
        ("SHELL_MEMORY_MB", "1", "from 64"),
        ("SHELL_PIDS", "many", "from 16"),
        ("SHELL_DISK_MB", "0", "from 1"),
        ("SHELL_SESSIONS", "0", "from 1 to 10000"),
    ] {
        let output = output(&World::at("host").set(name, value)).await;
        assert!(!output.status.success(), "{name}={value}");
        assert!(output.stdout.is_empty(), "standard output is for the protocol");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(name) && said.contains(words), "{name}: {said}");
    }
}

#[tokio::test]
async fn an_empty_setting_counts_as_unset() {
    let mut world = World::at("landlock");
    for name in [
        "SHELL_READ_ONLY",
        "SHELL_NETWORK",
        "SHELL_TIMEOUT_SECONDS",
        "SHELL_MEMORY_MB",
        "SHELL_PIDS",
        "SHELL_DISK_MB",
        "SHELL_SESSIONS",
    ] {
        world = world.set(name, "");
    }
    let Some(server) = world.server().await else { return };
    assert_eq!(server.run("true").await["exitCode"], 0);
}

#[tokio::test]
async fn commands_do_not_run_as_root_where_they_could_not_come_through() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return not_checked("a directory of root's own as SHELL_ROOT");
    }
    let world = World::at("landlock");
    std::fs::set_permissions(world.directory.path(), std::fs::Permissions::from_mode(0o700)).expect("permissions");
    let output = output(&world).await;
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success() && said.contains("chmod o+x"), "{said}");
}

#[tokio::test]
async fn the_tool_says_what_it_is_at_each_level() {
    for level in ["bwrap", "landlock", "host"] {
        let world = World::at(level);
        let Some(server) = world.server().await else { continue };
        let tools = server.client.list_all_tools().await.expect("tools/list");
        let mut tools = serde_json::to_value(tools).expect("JSON");
        let description = tools[0]["description"].as_str().expect("a description");
        assert!(description.contains(level), "{description}");
        // Without a sandbox that is said at every start, and not otherwise.
        assert_eq!(world.log().contains("commands run without a sandbox"), level == "host");
        tools.sort_all_objects();
        insta::assert_json_snapshot!(format!("tools_list_{level}"), tools);
        let about = server.client.peer_info().expect("a server");
        assert!(serde_json::to_value(about).is_ok_and(|about: Value| about["instructions"].is_string()));
    }
}

#[tokio::test]
async fn auto_is_the_strictest_level_that_works() {
    let world = World::at("auto");
    let Some(server) = world.server().await else { return };
    assert_eq!(server.run("true").await["sandbox"], "bwrap");
    // bubblewrap is hidden: the next level is chosen, and said.
    let Some(output) = without(&world, true, false) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("level=landlock"), "{said}");
}

/// Nothing usable, and a level that is asked for but does not work: no start, and no weaker level.
#[tokio::test]
async fn no_command_runs_at_a_weaker_level_than_asked_for() {
    for (level, hide_bwrap, hide_landlock, words) in [
        ("auto", true, true, "bubblewrap is not installed"),
        ("bwrap", true, false, "SHELL_SANDBOX is bwrap, which does not work here"),
        (
            "landlock",
            false,
            true,
            "SHELL_SANDBOX is landlock, which does not work here",
        ),
    ] {
        let Some(output) = without(&World::at(level), hide_bwrap, hide_landlock) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{level}: {said}");
        assert!(
            said.contains("apt-get install bubblewrap") && said.contains("Linux 6.7"),
            "{said}"
        );
        assert!(!said.contains("serving MCP"), "{said}");
    }
}

/// The program on a system without bubblewrap, or on one whose kernel has no Landlock: by bubblewrap itself.
fn without(world: &World, hide_bwrap: bool, hide_landlock: bool) -> Option<Output> {
    if !is_root() || !Path::new("/usr/bin/bwrap").exists() {
        not_checked("a system without bubblewrap or Landlock, which only root can make");
        return None;
    }
    let filter = world.directory.path().join("filter");
    // The calls from 444 to 446 are Landlock's. This filter says that they do not exist.
    let instructions: [(u16, u8, u8, u32); 5] = [
        (0x20, 0, 0, 0),
        (0x35, 0, 2, 444),
        (0x25, 1, 0, 446),
        (0x06, 0, 0, 0x0005_0026),
        (0x06, 0, 0, 0x7fff_0000),
    ];
    let bytes: Vec<u8> = instructions
        .iter()
        .flat_map(|(code, jt, jf, k)| [&code.to_ne_bytes()[..], &[*jt, *jf], &k.to_ne_bytes()].concat())
        .collect();
    std::fs::write(&filter, bytes).expect("a filter");
    let mut script = "exec bwrap --dev-bind / / --cap-add ALL".to_owned();
    if hide_bwrap {
        script.push_str(" --ro-bind /dev/null /usr/bin/bwrap");
    }
    if hide_landlock {
        script.push_str(" --seccomp 9");
    }
    script.push_str(&format!(" {PROGRAM} 9< {}", filter.display()));
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", &script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(&world.environment);
    Some(command.stdin(Stdio::null()).output().expect("it runs"))
}

#[tokio::test]
async fn a_probe_says_which_levels_work() {
    let world = World::at("auto");
    let args = |level: &str| Args {
        sandbox: Some(level.to_owned()),
        root: Some(world.root().into()),
        ..Args::default()
    };
    let launcher = Launcher::new(PROGRAM, ["launch"]);
    let found = probe(args("auto"), launcher.clone()).await.expect("valid settings");
    let levels: Vec<_> = found.findings.iter().map(|finding| finding.level).collect();
    assert_eq!(levels, [Level::Bwrap, Level::Landlock]);
    if found.findings.iter().any(|finding| finding.problem.is_some()) {
        not_checked(&found.to_string());
    } else {
        assert_eq!(found.level, Some(Level::Bwrap));
        assert_eq!(found.to_string(), "bwrap: works\nlandlock: works\n");
    }
    assert_eq!(found.has_users, is_root());
    let host = probe(args("host"), launcher).await.expect("valid settings");
    assert_eq!((host.level, host.findings.len()), (Some(Level::Host), 3));
    // A launcher that leads elsewhere is a problem of every level.
    let broken = probe(args("auto"), Launcher::new("/bin/false", [""; 0]))
        .await
        .expect("valid settings");
    assert_eq!(broken.level, None);
    assert!(broken.findings.iter().all(|finding| finding.problem.is_some()));
}

#[tokio::test]
async fn help_teaches_and_hides_the_launcher() {
    let output = World::at("host")
        .program()
        .arg("--help")
        .output()
        .await
        .expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "SHELL_SANDBOX",
        "SHELL_ROOT",
        "SHELL_READ_ONLY",
        "SHELL_NETWORK",
        "SHELL_TIMEOUT_SECONDS",
        "SHELL_MEMORY_MB",
        "SHELL_PIDS",
        "SHELL_DISK_MB",
        "SHELL_SESSIONS",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("launch"), "{help}");
}
