//! A container engine of the tests' own: Podman's service with Docker's API, with its own storage, and one image with
//! sh, git, make and procps. Started once by each test program; everything of it is gone when the program ends.
//!
//! It requires root, `podman`, `runc` and `debootstrap`. Without root the tests are skipped, and say so; with root, or
//! with `CI` set, missing parts are an error.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The image that every engine has.
pub(crate) const IMAGE: &str = "localhost/gavel-test/base:1";

/// An image whose containers have their working directory, and what the server keeps of scripts, at `/disk`.
pub(crate) const SMALL_IMAGE: &str = "localhost/gavel-test/small:1";

/// Of a small disk, in MiB.
const SMALL: u32 = 16;

const CONF: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"#;

/// Closes what this program was started with, such as the lock of a build: a container's processes would keep it open.
const CLOSE: &str = r#"
    for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done
    exec "$0" "$@"
"#;

/// The engine's storage, and its first service.
#[derive(Debug)]
pub(crate) struct Engine {
    directory: PathBuf,
    service: Service,
    /// Its other end closes when this program ends, however it ends.
    _janitor: Child,
}

/// One process that serves the API on a socket. Several may serve one storage.
#[derive(Debug)]
pub(crate) struct Service {
    socket: PathBuf,
    process: u32,
}

/// The engine of this test program; `None` if it cannot be run, because this is not root.
pub(crate) fn engine() -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    ENGINE.get_or_init(start).as_ref()
}

fn start() -> Option<Engine> {
    let is_root = text(Command::new("id").arg("-u")).trim() == "0";
    if !is_root {
        assert!(std::env::var_os("CI").is_none(), "the tests of containers require root");
        eprintln!("NOT CHECKED, because it requires root: everything that needs a container engine");
        return None;
    }
    for tool in ["podman", "runc", "debootstrap"] {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", tool]).output();
        assert!(
            found.expect("sh").status.success(),
            "{tool} is missing: apt-get install podman runc debootstrap"
        );
    }
    let base = base();
    let directory = tempfile::tempdir().expect("a temporary directory").keep();
    fs::write(directory.join("containers.conf"), CONF).expect("written");
    let root = directory.display();
    // Without volatile, each unmount writes all that any program has changed on the disk (overlayfs.rst, "Volatile mount").
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = \"{root}/storage\"\nrunroot = \"{root}/run\"\n\
         [storage.options.overlay]\nskip_mount_home = \"true\"\nmountopt = \"volatile\"\n"
    );
    fs::write(directory.join("storage.conf"), storage).expect("written");
    let janitor = janitor(&directory);
    let import = ["import".as_ref(), "--quiet".as_ref(), base.as_os_str(), IMAGE.as_ref()];
    text(podman(&directory).args(import));
    let service = serve(&directory);
    Some(Engine {
        directory,
        service,
        _janitor: janitor,
    })
}

impl Engine {
    /// `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        self.service.host()
    }

    /// Another process with a socket of its own, for tests that kill it.
    pub(crate) fn other_service(&self) -> Service {
        serve(&self.directory)
    }

    /// Runs a command of podman itself, as an operator would.
    pub(crate) fn podman<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        text(podman(&self.directory).args(arguments))
    }

    /// Makes [`SMALL_IMAGE`], and a disk of [`SMALL`] MiB for its containers. Returns the value of `DOCKER_MOUNTS`.
    pub(crate) fn small_disk(&self) -> String {
        let name = "gavel-test-small";
        let links = "mkdir /disk && ln -s /disk /work && ln -s /disk /var/lib/gavel";
        self.podman(["run", "--name", name, IMAGE, "sh", "-c", links]);
        self.podman(["commit", "--quiet", name, SMALL_IMAGE]);
        let disk = self.directory.join("disk");
        fs::create_dir(&disk).expect("a directory");
        let mount = ["-t", "tmpfs", "-o", &format!("size={SMALL}m"), "gavel-test"];
        text(Command::new("mount").args(mount).arg(&disk));
        format!("{}:/disk:rw", disk.display())
    }

    /// Starts a service again on the same socket.
    pub(crate) fn serve_again(&self, service: &mut Service) {
        fs::remove_file(&service.socket).ok();
        service.process = spawn_service(&self.directory, &service.socket);
    }
}

impl Service {
    /// `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// As a crash would: nothing is completed.
    pub(crate) fn kill(&self) {
        text(Command::new("kill").args(["-KILL", &self.process.to_string()]));
    }
}

fn podman(directory: &Path) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", CLOSE, "podman"])
        // The engine writes a file beside it when a container runs out of memory.
        .current_dir(directory)
        .env("CONTAINERS_CONF", directory.join("containers.conf"))
        .env("CONTAINERS_STORAGE_CONF", directory.join("storage.conf"))
        .stdin(Stdio::null());
    command
}

fn serve(directory: &Path) -> Service {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let socket = directory.join(format!("{number}.sock"));
    let process = spawn_service(directory, &socket);
    Service { socket, process }
}

fn spawn_service(directory: &Path, socket: &Path) -> u32 {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("service.log"))
        .expect("a log");
    let mut child = podman(directory)
        .args(["system", "service", "-t", "0"])
        .arg(format!("unix://{}", socket.display()))
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        // Not one of the processes that a Ctrl-C ends: the janitor ends it.
        .process_group(0)
        .spawn()
        .expect("podman");
    let process = child.id();
    let pids = directory.join("pids");
    let known = fs::read_to_string(&pids).unwrap_or_default();
    fs::write(&pids, format!("{known}{process}\n")).expect("written");
    // So that it does not stay as a zombie.
    std::thread::spawn(move || child.wait());
    let until = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "podman's service does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    process
}

/// Ends and removes everything after this program has ended.
fn janitor(directory: &Path) -> Child {
    let script = r#"
        trap '' INT TERM HUP
        cat >/dev/null
        podman rm --all --force --time 0 >/dev/null 2>&1
        for process in $(cat "$0/pids"); do
            tr '\0' ' ' <"/proc/$process/cmdline" | grep -q "system service .*$0/" && kill -KILL "$process"
        done
        # For five minutes, podman keeps a process for each command that was run in a container.
        for file in $(grep -l "^$0/" /proc/[0-9]*/cmdline -z -s); do
            process=${file#/proc/} && process=${process%/cmdline}
            grep -qz '/conmon$' "$file" && kill -KILL "$process"
        done
        grep -o " $0/[^ ]*" /proc/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
        rm -rf "$0"
    "#;
    Command::new("bash")
        .args(["-c", CLOSE, "sh", "-c", script])
        .arg(directory)
        .env("CONTAINERS_CONF", directory.join("containers.conf"))
        .env("CONTAINERS_STORAGE_CONF", directory.join("storage.conf"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh")
}

/// A tar of a small Debian, made once and kept beside the build.
fn base() -> PathBuf {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("container-base");
    fs::create_dir_all(&cache).expect("a directory");
    let tar = cache.join("base-1.tar");
    // Several test programs may want it at once.
    let script = r#"
        set -e
        exec 9>"$0/lock"
        flock 9
        [ -e "$0/base-1.tar" ] && exit 0
        root="$(mktemp -d "$0/root.XXXXXX")"
        trap 'rm -rf "$root"' EXIT
        debootstrap --variant=minbase --include=git,make,procps bookworm "$root" >"$0/debootstrap.log" 2>&1
        tar -C "$root" --exclude='./var/cache/apt/archives/*.deb' --exclude='./usr/share/doc/*' \
            --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./var/lib/apt/lists/*' \
            -cf "$0/base-1.tar.new" .
        mv "$0/base-1.tar.new" "$0/base-1.tar"
    "#;
    text(Command::new("bash").args(["-c", script]).arg(&cache));
    tar
}

/// The output of a command that has to succeed.
fn text(command: &mut Command) -> String {
    let output = command.output().expect("the command runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
