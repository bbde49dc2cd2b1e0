//! Output, memory and disk.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::at_each_level;
use crate::harness::{Server, World, is_root, stdout, work};
use crate::observe::{field, supervisors};

at_each_level!(
    a_gigabyte_of_output_is_cut_in_little_memory,
    a_file_of_ten_gigabytes_is_stopped,
    many_files_are_stopped_too,
    a_deleted_file_counts_while_it_is_open,
    a_full_session_can_be_cleaned_up,
    many_commands_together_stay_within_the_limit_of_their_session,
    more_memory_than_allowed_is_not_given,
);

/// The most memory of the server and its supervisor while the command runs, in KiB, and the result.
async fn peak_memory(server: &Server, command: &str) -> (u64, serde_json::Value) {
    let handle = server.begin(json!({ "command": command }), json!({})).await;
    let mut answer = std::pin::pin!(server.end(handle));
    let mut most = 0;
    loop {
        let tick = tokio::time::sleep(Duration::from_millis(50));
        let peaks = supervisors(server.process).into_iter().chain([server.process]);
        most = peaks.filter_map(|id| field(id, "VmHWM:")).max().unwrap_or(0).max(most);
        tokio::select! {
            answer = &mut answer => return (most, answer.expect("an answer").ok()),
            () = tick => {}
        }
    }
}

async fn a_gigabyte_of_output_is_cut_in_little_memory(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let begin = Instant::now();
    let command = "echo first; head -c 1073741824 /dev/zero; echo; echo last; echo error >&2";
    let (memory, result) = peak_memory(&server, command).await;
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    assert!((1_000..60_000).contains(&memory), "{memory} KiB");
    assert_eq!(
        (&result["truncated"], &result["exitCode"], &result["stderr"]),
        (&json!(true), &json!(0), &json!("error\n"))
    );
    let text = stdout(&result);
    let gap = 1_073_741_824 + 12 - (16 << 10) - (112 << 10);
    assert!(text.starts_with("first\n\u{fffd}") && text.ends_with("\u{fffd}\nlast\n"));
    assert!(
        text.contains(&format!("\n[{gap} bytes left out]\n")),
        "the gap is named"
    );
    assert_eq!(text.chars().filter(|c| *c == '\u{fffd}').count(), (128 << 10) - 12);
}

async fn a_file_of_ten_gigabytes_is_stopped(level: &'static str) {
    let world = World::at(level).set("SHELL_DISK_MB", "48");
    let Some(server) = world.server().await else { return };
    for command in [
        "head -c 10737418240 /dev/zero > file; echo $?",
        "rm -f file; fallocate -l 10G file; truncate -s 10G sparse",
    ] {
        let begin = Instant::now();
        let reply = server
            .call(json!({ "command": command }), json!({ "gavel/session_id": "s" }))
            .await;
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let files = std::fs::read_dir(work(&world.root()).0).expect("files").flatten();
        let sizes: Vec<u64> = files.map(|file| file.metadata().expect("a file").len()).collect();
        assert!(sizes.iter().all(|size| *size <= 48 << 20), "{sizes:?}");
        if sizes.contains(&(48 << 20)) {
            assert_eq!(reply.code(), "disk_full");
            let error = &reply.body["error"];
            assert_eq!(error["limitBytes"], 48 << 20);
            assert!(
                error["message"]
                    .as_str()
                    .is_some_and(|words| words.contains("48 MiB") && words.contains("Delete files"))
            );
            assert_eq!(error["result"]["sandbox"], level);
        }
    }
}

async fn many_files_are_stopped_too(level: &'static str) {
    let world = World::at(level).set("SHELL_DISK_MB", "64");
    let Some(server) = world.server().await else { return };
    let command =
        "i=0; while [ $i -lt 2000 ]; do mkdir -p d$i; head -c 5000000 /dev/zero > d$i/f || exit; i=$((i+1)); done";
    let begin = Instant::now();
    let reply = server
        .call(json!({ "command": command }), json!({ "gavel/session_id": "s" }))
        .await;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(reply.code(), "disk_full");
    let used = reply.body["error"]["usedBytes"].as_u64().expect("a number");
    assert!(used > 64 << 20 && used < 1 << 30, "{used}");
    assert!(size(&work(&world.root()).0) < 1 << 30);
}

async fn a_deleted_file_counts_while_it_is_open(level: &'static str) {
    let world = World::at(level).set("SHELL_DISK_MB", "32");
    let Some(server) = world.server().await else { return };
    let command = "for i in 3 4 5 6 7 8 9; do eval \"exec $i> f$i\"; rm f$i; done; \
                   for i in 3 4 5 6 7 8 9; do head -c 20000000 /dev/zero >&$i; done; sleep 20";
    let begin = Instant::now();
    let reply = server.call(json!({ "command": command }), json!({})).await;
    assert_eq!(reply.code(), "disk_full", "{:?}", reply.body);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    // It is gone with the command.
    assert!(size(&work(&world.root()).0) < 1 << 20);
}

fn size(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

async fn a_full_session_can_be_cleaned_up(level: &'static str) {
    let world = World::at(level).set("SHELL_DISK_MB", "8");
    let Some(server) = world.server().await else { return };
    let full = server.keyed("fill", "head -c 100M /dev/zero > a").await;
    assert_eq!(full.code(), "disk_full");
    // A further attempt has the same answer.
    assert_eq!(server.keyed("fill", "head -c 100M /dev/zero > a").await, full);
    // What does not write works, what writes is stopped, and deleting makes space.
    assert_eq!(stdout(&server.run_in("s", "ls").await), "a\n");
    assert_eq!(
        server.keyed("more", "head -c 5M /dev/zero > b; sleep 9").await.code(),
        "disk_full"
    );
    server.run_in("s", "rm a b").await;
    assert_eq!(
        stdout(&server.run_in("s", "head -c 5M /dev/zero > b; wc -c < b").await),
        "5242880\n"
    );
}

/// Each is fast enough to get beyond the limit before it is seen.
async fn many_commands_together_stay_within_the_limit_of_their_session(level: &'static str) {
    let world = World::at(level).set("SHELL_DISK_MB", "5");
    let Some(server) = world.server().await else { return };
    server.run_in("s", "head -c 3M /dev/urandom > kept").await;
    for command in [
        "for i in 1 2 3 4 5 6 7 8; do head -c 4M /dev/zero > many$i & done; wait",
        "head -c 4M /dev/zero >> kept",
        "head -c 4M /dev/zero > linked; ln linked other",
        "truncate -s 4M s1 s2 s3 s4",
        "for i in 1 2 3 4; do dd if=/dev/zero of=s$i bs=1M count=4 conv=notrunc & done; wait",
        "i=0; while [ $i -lt 9000 ]; do echo > small$i; i=$((i+1)); done",
        "exec 3> gone; rm gone; head -c 4M /dev/zero >&3; head -c 4M /dev/zero > new",
        "head -c 4M /dev/zero > late & head -c 4M /dev/zero > late2; sleep 9",
    ] {
        let meta = json!({ "gavel/session_id": "s" });
        server
            .call(json!({ "command": command, "timeoutSeconds": 5 }), meta)
            .await;
        let work = work(&world.root()).0;
        let used = std::process::Command::new("du")
            .args(["-sk"])
            .arg(&work)
            .output()
            .expect("du")
            .stdout;
        let kib: u64 = String::from_utf8_lossy(&used)
            .split_whitespace()
            .next()
            .expect("a size")
            .parse()
            .expect("KiB");
        // The names of thousands of files take space in the directory itself, which does not count.
        let names = std::fs::metadata(&work).expect("a directory").blocks() / 2;
        assert!(
            kib - names <= 5 * 1024 + 64,
            "{command}: {kib} KiB, {names} of them for names"
        );
        assert!(
            std::fs::metadata(work.join("kept")).expect("a file").len() >= 3 << 20,
            "{command}"
        );
    }
}

async fn more_memory_than_allowed_is_not_given(level: &'static str) {
    let world = World::at(level).set("SHELL_MEMORY_MB", "96");
    let Some(server) = world.server().await else { return };
    let fill = |mib: u32| format!("perl -e 'my $x = \"x\" x ({mib} << 20); print length($x), \"\\n\"'");
    assert_eq!(stdout(&server.run(&fill(20)).await), "20971520\n");
    let result = server.run(&fill(400)).await;
    assert_eq!(stdout(&result), "", "{result}");
    if is_root() && world.log().contains("control groups limit") {
        // Of all its processes together, and of what is in memory but looks like a file.
        let together = format!(
            "for i in 1 2 3 4 5 6; do {} & done; wait",
            fill(40).replace("print", "sleep 1; print")
        );
        let result = server.run(&together).await;
        assert!(stdout(&result).lines().count() < 6, "{result}");
    }
    if level == "bwrap" {
        let result = server
            .run("head -c 400M /dev/zero > /tmp/x; head -c 400M /dev/zero > /dev/shm/x; echo x > /dev/x")
            .await;
        assert_eq!(result["timedOut"], false);
        assert!(result["exitCode"] != 0, "{result}");
    }
}
