//! What a command may try, and what comes of it: the rows of the table in `docs/reference/shell-server.md`. The network is in
//! `network.rs`, memory, disk and output are in `resources.rs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::at_each_level;
use crate::harness::{World, is_root, not_checked, stdout, work};
use crate::observe::{of_user, unique, with_word};

at_each_level!(
    a_fork_bomb_stays_within_its_limit_and_ends,
    a_child_with_a_session_of_its_own_ends_with_the_command,
    a_link_leads_nowhere_else,
    other_processes_cannot_be_looked_into,
    other_processes_cannot_be_ended,
    a_setuid_program_gives_no_rights,
    namespaces_cannot_be_made,
    system_calls_that_lead_out_are_denied,
);

async fn a_fork_bomb_stays_within_its_limit_and_ends(level: &'static str) {
    let world = World::at(level).set("SHELL_PIDS", "40");
    let Some(server) = world.server().await else { return };
    // Bounded in time by itself too, in case that nothing else holds.
    let bomb = "perl -e 'my $end = time + 60; while (time < $end) { fork; select undef, undef, undef, 0.01 }'";
    let arguments = json!({ "command": bomb, "timeoutSeconds": 4 });
    let handle = server.begin(arguments, json!({})).await;
    let begin = Instant::now();
    let mut answer = std::pin::pin!(server.end(handle));
    let mut most = 0;
    let result = loop {
        if is_root() {
            most = most.max(of_user(work(&world.root()).1));
        }
        tokio::select! {
            answer = &mut answer => break answer.expect("an answer").ok(),
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    };
    // Not by itself.
    assert!(begin.elapsed() < Duration::from_secs(50), "{:?}", begin.elapsed());
    assert_eq!((&result["timedOut"], &result["exitCode"]), (&json!(true), &json!(null)));
    if is_root() {
        assert!((20..=40).contains(&most), "{most} processes");
        assert_eq!(of_user(work(&world.root()).1), 0);
    }
    // The server is well.
    assert_eq!(stdout(&server.run("echo well").await), "well\n");
}

async fn a_child_with_a_session_of_its_own_ends_with_the_command(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let word = unique();
    let command = format!(
        "setsid sh -c 'setsid sleep {word} & (trap \"\" TERM HUP INT; setsid sleep {word} > /dev/null 2>&1 < /dev/null) &' \
         & sleep {word} & sleep 0.3; echo started"
    );
    let begin = Instant::now();
    let result = server.run(&command).await;
    assert_eq!((stdout(&result), &result["exitCode"]), ("started\n", &json!(0)));
    // What was left would sleep for more than a day.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(with_word(&word), [0; 0]);
}

async fn a_link_leads_nowhere_else(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let secret = world.directory.path().join("secret");
    fs::write(&secret, "canary").expect("a file");
    // What others may not read, no level shows, if commands have users of their own.
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("permissions");
    let path = secret.display();
    let attack = format!(
        "ln -s {path} a; ln -s / b; ln -s /proc/1/root c; ln {path} d; cat a b{path} c{path} d; echo x > a; \
         echo x > b{path}; cat b/etc/shadow; ls ../../../"
    );
    let result = server.run(&attack).await;
    if level != "host" || is_root() {
        assert!(!stdout(&result).contains("canary"), "{result}");
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "canary");
    }
    if level == "host" {
        return;
    }
    fs::set_permissions(&secret, Permissions::from_mode(0o666)).expect("permissions");
    let result = server.run(&format!("{attack}; exit 0")).await;
    assert!(
        !stdout(&result).contains("canary") && !stdout(&result).contains("root:"),
        "{result}"
    );
    assert_eq!(fs::read_to_string(&secret).expect("a file"), "canary");
    // Nor does the server follow what it finds in a session: the next command and its measurement work as before.
    let result = server
        .run("rm -f a b c d; ln -s / e; mkdir f; ln -s /usr f/g; echo well")
        .await;
    assert_eq!(stdout(&result), "well\n");
}

async fn other_processes_cannot_be_looked_into(level: &'static str) {
    let word = unique();
    let world = World::at(level).set("CANARY", &format!("canary-{word}"));
    let Some(server) = world.server().await else { return };
    let result = server
        .run("cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n'; ls -l /proc/[0-9]*/fd")
        .await;
    assert!(stdout(&result).len() < 1 << 20);
    if level != "host" || is_root() {
        assert!(!stdout(&result).contains(&format!("canary-{word}")), "{result}");
    }
    let seen = stdout(&server.run("ls -d /proc/[0-9]* 2>/dev/null | wc -l").await)
        .trim()
        .to_owned();
    let seen: usize = seen.parse().expect("a number");
    match level {
        "bwrap" => assert!(seen < 10, "{seen} processes"),
        "landlock" => assert_eq!(seen, 0),
        _ => assert!(seen > 10, "{seen} processes"),
    }
}

async fn other_processes_cannot_be_ended(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    if level == "host" && !is_root() {
        // A command of the same user may do that.
        return;
    }
    let (own, program) = (std::process::id(), server.process);
    let attack = format!("kill -9 {own}; kill -9 {program}; kill -9 $PPID; kill -9 -1; echo $PPID");
    let result = server.run(&format!("({attack}); true")).await;
    // The last one may have ended the command itself.
    assert_eq!(result["timedOut"], false);
    assert_eq!(stdout(&server.run("echo well").await), "well\n");
}

/// The program says as whom it runs.
async fn a_setuid_program_gives_no_rights(level: &'static str) {
    if !is_root() {
        return not_checked(&format!("{level}: a setuid program, which only root can make"));
    }
    let places = tempfile::tempdir().expect("a directory");
    fs::set_permissions(places.path(), Permissions::from_mode(0o755)).expect("permissions");
    let program = places.path().join("id");
    fs::copy("/usr/bin/id", &program).expect("a copy");
    fs::set_permissions(&program, Permissions::from_mode(0o6755)).expect("permissions");
    let world = World::at(level).set("SHELL_READ_ONLY", places.path().to_str().expect("a path"));
    let Some(server) = world.server().await else { return };
    let result = server
        .run(&format!("{} -u; {} -g; id -u", program.display(), program.display()))
        .await;
    let ids: Vec<_> = stdout(&result).lines().collect();
    assert!(
        ids.len() == 3 && ids.iter().all(|id| *id == ids[2] && *id != "0"),
        "{result}"
    );
    // The program is what it seems: without the server, another user becomes root by it.
    let control = std::process::Command::new("/usr/bin/setpriv")
        .args(["--reuid=54321", "--regid=54321", "--clear-groups"])
        .arg(&program)
        .arg("-u")
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&control.stdout), "0\n");
}

async fn namespaces_cannot_be_made(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let attack = "for kind in -U -Ur -m -n -i -u -p -C -T; do unshare $kind true 2>/dev/null && echo made $kind; done; \
                  mkdir m; mount -t tmpfs none m 2>/dev/null && echo mounted; bwrap --ro-bind / / true 2>/dev/null && echo \
                  bwrap; chroot / true 2>/dev/null && echo chroot";
    let result = server.run(attack).await;
    match level {
        "host" => assert!(!stdout(&result).contains("mounted"), "{result}"),
        _ => assert_eq!(stdout(&result), "", "{result}"),
    }
    // By clone and clone3, too. 0x10000000 is a user namespace, 17 is SIGCHLD.
    let clone = r#"my $r = syscall(56, 0x10000000 | 17, 0, 0, 0, 0); if ($r == 0) { exit 0 } print $r < 0 ? "clone: $!\n" : "made\n";
                   my $a = pack("Q8", 0x10000000, 0, 0, 0, 17, 0, 0, 0); $r = syscall(435, $a, 64); exit 0 if $r == 0;
                   print $r < 0 ? "clone3: $!\n" : "made\n";"#;
    if level != "host" && cfg!(target_arch = "x86_64") {
        let result = server.run(&format!("perl -e '{clone}'")).await;
        let expected = "clone: Operation not permitted\nclone3: Function not implemented\n";
        assert_eq!(stdout(&result), expected, "{result}");
    }
}

async fn system_calls_that_lead_out_are_denied(level: &'static str) {
    if level == "host" || !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(server) = World::at(level).server().await else {
        return;
    };
    // bpf, keyctl, add_key, io_uring_setup, perf_event_open, userfaultfd, mount, open_by_handle_at, pidfd_getfd,
    // process_vm_readv, process_vm_writev, ptrace, setns
    let calls = "321, 250, 248, 425, 298, 323, 165, 304, 438, 310, 311, 101, 308";
    let attack = format!(
        "perl -e 'for my $n ({calls}) {{ my $r = syscall($n, 0, 0, 0, 0, 0); print \"$n \", $r < 0 ? $!+0 : 0, \"\\n\" }}'"
    );
    let result = server.run(&attack).await;
    assert_eq!(stdout(&result).lines().count(), 13, "{result}");
    assert!(stdout(&result).lines().all(|line| line.ends_with(" 1")), "{result}");
    // Calls of x32 and calls after those that are known do not exist.
    let other = "perl -e 'for my $n (0x40000000 + 41, 0x40000000 + 165, 467) { my $r = syscall($n, 2, 1, 0); print $!+0, \"\\n\" }'";
    assert_eq!(stdout(&server.run(other).await), "38\n38\n38\n");
    if level == "landlock" {
        // shmget, mq_open
        let shared = "perl -e 'for my $n (29, 240) { my $r = syscall($n, 0, 0, 0, 0); print $!+0, \"\\n\" }'";
        assert_eq!(stdout(&server.run(shared).await), "1\n1\n");
    }
}
