//! The filter of system calls.

use std::collections::BTreeMap;

use anyhow::Context;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::job::{Job, Level};

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
pub(super) fn apply(job: &Job) -> anyhow::Result<()> {
    seccompiler::apply_filter(&program(job)?).context("the kernel has no filter of system calls (seccomp)")
}

/// The filter as bubblewrap reads it.
pub(super) fn bytes(job: &Job) -> anyhow::Result<Vec<u8>> {
    let program = program(job)?;
    let instructions = program.iter().flat_map(|instruction| {
        let sock_filter { code, jt, jf, k } = instruction;
        [&code.to_ne_bytes()[..], &[*jt, *jf], &k.to_ne_bytes()].concat()
    });
    Ok(instructions.collect())
}

fn program(job: &Job) -> anyhow::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into();
    let architecture = architecture.context("system calls cannot be filtered on this processor architecture")?;
    let denied = SeccompAction::Errno(errno(libc::EPERM));
    let filter = SeccompFilter::new(rules(job)?, SeccompAction::Allow, denied, architecture)?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(unknown().into_iter().chain(filter).collect())
}

fn rules(job: &Job) -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
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
