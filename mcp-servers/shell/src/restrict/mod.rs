//! The last step before a command: this process joins the command's control groups, takes on its limits, restricts
//! itself to the level, and becomes the command.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::fs::{MemfdFlags, Mode, memfd_create};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, getuid, set_parent_process_death_signal, setrlimit, umask};
use rustix::thread::set_no_new_privs;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::job::{Job, Level, read};
use crate::root::{FAILED, JOB};
use crate::{cgroup, processes};

/// The shell's own code for a command that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// Becomes the command of the call. Returns only if that is not possible; why is then in a file of the call.
pub(crate) fn become_command(call: &Path, groups: Vec<PathBuf>) -> ExitCode {
    let error = match File::create(call.join(FAILED)) {
        Err(error) => anyhow::Error::from(error),
        Ok(mut failed) => {
            let error = match prepare(call, &groups) {
                Ok(mut command) => {
                    anyhow::Error::from(command.exec()).context("the command's shell cannot be executed")
                }
                Err(error) => error,
            };
            let _ = write!(failed, "{error:#}");
            error
        }
    };
    eprintln!("gavel-mcp-shell: the command was not run: {error:#}");
    ExitCode::from(CANNOT_EXECUTE)
}

fn prepare(call: &Path, groups: &[PathBuf]) -> anyhow::Result<Command> {
    let job: Job = read(&call.join(JOB))?.context("there is no job")?;
    for group in groups {
        cgroup::join(group).with_context(|| format!("cannot join {}", group.display()))?;
    }
    umask(Mode::WGRP | Mode::WOTH);
    limit(&job).context("a limit cannot be set")?;
    set_no_new_privs(true)?;
    if job.user.is_none() {
        // With a user of its own, the command cannot kill the supervisor.
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    let mut command = match job.sandbox.level {
        Level::Bwrap => bwrap_command(&job)?,
        Level::Landlock => {
            restrict_files(&job)?;
            apply_filter(&job)?;
            shell(&job)
        }
        Level::Host => shell(&job),
    };
    if let Some(user) = job.user {
        // Also drops all other groups and, with the user, all capabilities.
        command.uid(user).gid(user);
    }
    limit_last(&job).context("a limit cannot be set")?;
    Ok(command)
}

fn shell(job: &Job) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "--", &job.command]);
    command.env_clear().envs(job.environment()).current_dir(job.work());
    command
}

const OPEN_FILES: u64 = 1024;

/// Sets the limits for this process and what it becomes.
fn limit(job: &Job) -> rustix::io::Result<()> {
    let limits = job.limits;
    set(Resource::Core, 0)?;
    set(Resource::Nofile, OPEN_FILES)?;
    set(Resource::Nproc, limits.pids.saturating_add(others(job)))?;
    Ok(())
}

/// Sets the limit of each file, and that of the memory of each process, which is for want of control groups. This
/// process may write and use more than the command may, so they come last.
fn limit_last(job: &Job) -> rustix::io::Result<()> {
    set(Resource::Fsize, job.limits.disk << 20)?;
    match job.sandbox.has_cgroups {
        true => Ok(()),
        false => set(Resource::As, job.limits.memory << 20),
    }
}

/// The limit of processes counts all of the user's. A user that is not the command's own may have others.
fn others(job: &Job) -> u64 {
    match job.user {
        Some(_) => 0,
        None => {
            let own = getuid().as_raw();
            let all = processes::all();
            all.iter()
                .filter(|process| process.user == own)
                .map(|process| process.threads)
                .sum()
        }
    }
}

/// Never above what this process may have.
fn set(resource: Resource, limit: u64) -> rustix::io::Result<()> {
    let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
    let both = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    setrlimit(resource, both)
}

/// Directories with programs. On most systems all but the first are links into it.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What the programs of `/usr` need beyond it: links of Debian's `/usr/bin`, and where libraries are.
const FILES: [&str; 4] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
];

/// What they need to find hosts and to check their certificates.
const NETWORK: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// The files and directories of `/etc` that can be read, as far as they exist.
fn system_files(network: bool) -> impl Iterator<Item = &'static Path> {
    let network = network.then_some(NETWORK).into_iter().flatten();
    FILES
        .into_iter()
        .chain(network)
        .map(Path::new)
        .filter(|path| path.exists())
}

/// The least version that is enough: with TCP and with `truncate`.
const LEAST: ABI = ABI::V4;
/// The version that also has devices (5), and signals and abstract sockets of others (6).
const BEST: ABI = ABI::V6;

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Restricts this thread for good.
fn restrict_files(job: &Job) -> anyhow::Result<()> {
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

/// The program that runs the command in namespaces of its own.
fn bwrap_command(job: &Job) -> anyhow::Result<Command> {
    let program = job.sandbox.bwrap.as_ref().context("bubblewrap is not installed")?;
    let mut command = Command::new(program);
    command.env_clear().current_dir("/");
    command.args(["--unshare-all", "--unshare-user", "--disable-userns"]);
    if job.sandbox.network {
        command.arg("--share-net");
    }
    command.args(["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]);
    for (name, value) in job.environment() {
        command.args([OsStr::new("--setenv"), OsStr::new(name), value.as_os_str()]);
    }
    for path in PROGRAMS.map(Path::new) {
        match fs::read_link(path) {
            Ok(target) => {
                command.arg("--symlink").arg(target).arg(path);
            }
            Err(_) if path.exists() => read_only(&mut command, path),
            Err(_) => {}
        }
    }
    system_files(job.sandbox.network).for_each(|path| read_only(&mut command, path));
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    // What is in them is in memory.
    let memory = job.limits.memory << 20;
    for (path, size) in [("/dev/shm", memory / 4), ("/tmp", memory / 2)] {
        command.args(["--size", &size.to_string(), "--tmpfs", path]);
    }
    job.sandbox
        .read_only
        .iter()
        .for_each(|path| read_only(&mut command, path));
    command.arg("--bind").arg(job.work()).arg("/work");
    command.args(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]);
    command.args(["--seccomp", &filter_file(job)?.to_string()]);
    command.args(["--", "/bin/sh", "-c", "--", &job.command]);
    Ok(command)
}

fn read_only(command: &mut Command, path: &Path) {
    command.arg("--ro-bind").arg(path).arg(path);
}

/// A file with the filter, which bubblewrap inherits.
fn filter_file(job: &Job) -> anyhow::Result<i32> {
    // Without the flag that would close it.
    let mut file = File::from(memfd_create("filter", MemfdFlags::empty())?);
    file.write_all(&filter_bytes(job)?)?;
    file.rewind()?;
    Ok(file.into_raw_fd())
}

macro_rules! libc {
    ($($name:ident)*) => {
        [$(libc::$name),*]
    };
}

/// Calls that no command needs: they change the system, reach into other processes, or have been ways out of sandboxes.
const DENIED: [i64; 48] = libc![
    SYS_acct SYS_add_key SYS_adjtimex SYS_bpf SYS_chroot SYS_clock_adjtime SYS_clock_settime SYS_delete_module
    SYS_fanotify_init SYS_finit_module SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_init_module
    SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_kcmp SYS_kexec_load SYS_keyctl SYS_mount
    SYS_mount_setattr SYS_move_mount SYS_move_pages SYS_name_to_handle_at SYS_open_by_handle_at SYS_open_tree
    SYS_perf_event_open SYS_pidfd_getfd SYS_pivot_root SYS_process_madvise SYS_process_vm_readv
    SYS_process_vm_writev SYS_ptrace SYS_quotactl SYS_reboot SYS_request_key SYS_setdomainname SYS_sethostname
    SYS_setns SYS_settimeofday SYS_swapoff SYS_swapon SYS_syslog SYS_umount2 SYS_userfaultfd SYS_vhangup
];

/// Calls that are harmless in namespaces of one's own, and reach others without.
const DENIED_WITHOUT_NAMESPACES: [i64; 12] = libc![
    SYS_mq_open SYS_mq_unlink SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_semctl SYS_semget SYS_semop
    SYS_shmat SYS_shmctl SYS_shmget
];

/// Calls for memory that belongs to no process, so that only control groups limit it.
const DENIED_WITHOUT_CONTROL_GROUPS: [i64; 4] = libc![
    SYS_memfd_create SYS_memfd_secret SYS_msgget SYS_shmget
];

/// All namespaces that both `unshare` and `clone` make.
const NAMESPACES: [i32; 7] = libc![
    CLONE_NEWCGROUP CLONE_NEWIPC CLONE_NEWNET CLONE_NEWNS CLONE_NEWPID CLONE_NEWUSER CLONE_NEWUTS
];
/// For `clone`, this bit is a part of a signal's number.
const NEWTIME: i32 = 0x80;

/// The last call that this list was checked against, `mseal` of Linux 6.10. The numbers from 424 on are those of every
/// architecture. Later calls are said not to exist, and so are the calls of x32, whose numbers are higher.
const LAST_KNOWN: u32 = 462;

/// Applies the filter to this thread.
fn apply_filter(job: &Job) -> anyhow::Result<()> {
    seccompiler::apply_filter(&filter_program(job)?).context("the kernel has no filter of system calls (seccomp)")
}

/// The filter as bubblewrap reads it.
fn filter_bytes(job: &Job) -> anyhow::Result<Vec<u8>> {
    let program = filter_program(job)?;
    let instructions = program.iter().flat_map(|instruction| {
        let sock_filter { code, jt, jf, k } = instruction;
        [&code.to_ne_bytes()[..], &[*jt, *jf], &k.to_ne_bytes()].concat()
    });
    Ok(instructions.collect())
}

fn filter_program(job: &Job) -> anyhow::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into();
    let architecture = architecture.context("system calls cannot be filtered on this processor architecture")?;
    let denied = SeccompAction::Errno(errno(libc::EPERM));
    let filter = SeccompFilter::new(filter_rules(job)?, SeccompAction::Allow, denied, architecture)?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(unknown().into_iter().chain(filter).collect())
}

fn filter_rules(job: &Job) -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut deny = |call: i64, conditions: Vec<SeccompRule>| rules.insert(call, conditions);
    let shared = (job.sandbox.level == Level::Landlock).then_some(DENIED_WITHOUT_NAMESPACES);
    let unlimited = (!job.sandbox.has_cgroups).then_some(DENIED_WITHOUT_CONTROL_GROUPS);
    let more = shared.into_iter().flatten().chain(unlimited.into_iter().flatten());
    for call in DENIED.into_iter().chain(more) {
        deny(call, Vec::new());
    }
    let bit = |flag: i32| {
        let flag = u64::from(flag.cast_unsigned());
        let has = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![has])
    };
    let clone = NAMESPACES
        .iter()
        .map(|flag| bit(*flag))
        .collect::<Result<Vec<_>, _>>()?;
    let mut unshare = clone.clone();
    unshare.push(bit(NEWTIME)?);
    deny(libc::SYS_clone, clone);
    deny(libc::SYS_unshare, unshare);
    deny(libc::SYS_socket, no_family_but(families(job))?);
    deny(libc::SYS_socketpair, no_family_but(&[libc::AF_UNIX])?);
    Ok(rules)
}

/// The families whose sockets may be made. A network of its own has nothing to reach, by these families.
fn families(job: &Job) -> &'static [i32] {
    match (job.sandbox.level, job.sandbox.network) {
        (Level::Bwrap, false) => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        // Names in the network, and services on this host with abstract names, are reached by the same family.
        (_, true) => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        (_, false) => &[],
    }
}

/// One rule that applies to every other family. Without conditions, it applies to all.
fn no_family_but(families: &[i32]) -> anyhow::Result<Vec<SeccompRule>> {
    if families.is_empty() {
        return Ok(Vec::new());
    }
    let others = families.iter().map(|family| {
        let family = u64::from(family.cast_unsigned());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    });
    Ok(vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?])
}

/// Instructions before the filter: `clone3`, whose flags are in memory and cannot be read, and calls that are not known
/// do not exist. Programs then use older calls.
fn unknown() -> [sock_filter; 4] {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or_default();
    let missing = libc::SECCOMP_RET_ERRNO | errno(libc::ENOSYS);
    [
        // The number of the call is at the beginning of the data.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, clone3),
        instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, LAST_KNOWN),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, missing),
    ]
}

fn errno(number: i32) -> u32 {
    number.cast_unsigned()
}
