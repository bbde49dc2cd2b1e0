//! What a command gets, and what is returned of it.

use serde_json::{Value, json};

use crate::at_each_level;
use crate::harness::{World, is_root, stdout};

at_each_level!(
    a_command_has_its_own_directory_environment_and_user,
    the_end_of_a_command_is_returned,
    a_command_that_waits_for_input_ends_at_once,
    binary_output_becomes_text,
    only_the_given_places_can_be_read,
);

async fn a_command_has_its_own_directory_environment_and_user(level: &'static str) {
    let world = World::at(level).set("CANARY", "canary");
    let Some(server) = world.server().await else { return };
    let result = server
        .run("env | grep -v ^_= | sort; echo $HOME; pwd; id -u; umask")
        .await;
    let lines: Vec<_> = stdout(&result).lines().collect();
    let home = lines[6];
    if level == "bwrap" {
        assert_eq!(home, "/work");
    }
    let [home_line, pwd_line] = ["HOME", "PWD"].map(|name| format!("{name}={home}"));
    let path = "PATH=/usr/local/bin:/usr/bin:/bin";
    assert_eq!(
        lines[..6],
        ["CI=1", &home_line, "LANG=C.UTF-8", path, &pwd_line, "TERM=dumb"]
    );
    assert_eq!(lines[7], home);
    assert_eq!(lines[9], "0022");
    assert_eq!(result["sandbox"], level);
    if is_root() {
        let users: Vec<u32> = vec![lines[8].parse().expect("an id")];
        assert!(users[0] >= 0x7000_0000, "{users:?}");
        let groups = server
            .run("id -G; cat /proc/self/status 2>/dev/null | grep -E 'CapEff|CapPrm'")
            .await;
        assert_eq!(stdout(&groups).lines().next(), Some(lines[8]));
        assert!(
            stdout(&groups)
                .lines()
                .skip(1)
                .all(|line| line.ends_with("\t0000000000000000")),
            "{groups}"
        );
    }
    // Files remain for the next command.
    server
        .run("echo kept > file; mkdir -p a/b; mv file a/b/; chmod +x a/b/file")
        .await;
    assert_eq!(stdout(&server.run("cat a/b/file").await), "kept\n");
}

async fn the_end_of_a_command_is_returned(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let result = server.run("echo out; echo err >&2; exit 7").await;
    let expected = json!({
        "stdout": "out\n", "stderr": "err\n", "exitCode": 7, "signal": null, "timedOut": false,
        "interrupted": false, "truncated": false, "sandbox": level
    });
    assert_eq!(result, expected);
    let killed = server.run("kill -TERM $$").await;
    match level {
        // bubblewrap reports a signal as shells do.
        "bwrap" => assert_eq!((&killed["exitCode"], &killed["signal"]), (&json!(143), &Value::Null)),
        _ => assert_eq!(
            (&killed["exitCode"], &killed["signal"]),
            (&Value::Null, &json!("SIGTERM"))
        ),
    }
    let odd = server
        .run("-x 2>&1; printf '%s' \"it's\"\ncat <<'END'\n$HOME\nEND")
        .await;
    assert!(
        stdout(&odd).contains("-x: not found") && stdout(&odd).ends_with("it's$HOME\n"),
        "{odd}"
    );
    assert_eq!(server.run("no-such-program").await["exitCode"], 127);
}

async fn a_command_that_waits_for_input_ends_at_once(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let result = server.run("cat; read -r line; echo $?; head -c1 /dev/tty").await;
    assert_eq!(stdout(&result), "1\n");
    assert_ne!(result["exitCode"], 0, "there is no terminal");
}

async fn binary_output_becomes_text(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let result = server
        .run(r"printf 'a\000b\377c\303\244\033[31m'; printf '\200' >&2")
        .await;
    assert_eq!(stdout(&result), "a\u{fffd}b\u{fffd}c\u{e4}\u{1b}[31m");
    assert_eq!(result["stderr"], "\u{fffd}");
    let result = server.run("head -c 100000 /dev/urandom").await;
    assert_eq!(result["truncated"], false);
}

async fn only_the_given_places_can_be_read(level: &'static str) {
    let (readable, other) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    for directory in [&readable, &other] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), mode).expect("permissions");
        std::fs::write(directory.path().join("file"), "content").expect("a file");
    }
    let (readable, other) = (
        readable.path().to_str().expect("a path"),
        other.path().to_str().expect("a path"),
    );
    let world = World::at(level).set("SHELL_READ_ONLY", readable);
    let Some(server) = world.server().await else { return };
    assert_eq!(stdout(&server.run(&format!("cat {readable}/file")).await), "content");
    let write = server
        .run(&format!("echo x > {readable}/new; ls {readable}; echo x > /usr/new"))
        .await;
    let elsewhere = server
        .run(&format!("cat {other}/file; echo x > {other}/new; cat /etc/passwd"))
        .await;
    if level == "host" {
        // No sandbox: only the permissions of files count.
        assert!(stdout(&write).contains("new") && stdout(&elsewhere).contains("content"));
    } else {
        assert_eq!(stdout(&write), "file\n");
        assert_eq!(stdout(&elsewhere), "");
        assert!(!std::path::Path::new(other).join("new").exists());
    }
    assert!(!std::path::Path::new("/usr/new").exists());
}
