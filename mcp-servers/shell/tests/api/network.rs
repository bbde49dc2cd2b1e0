//! The network, of each family. Whatever a command tries, the listeners of the test see nothing of it.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use crate::at_each_level;
use crate::harness::{World, stdout};
use crate::observe::unique;

at_each_level!(no_listener_is_reached, the_operator_can_allow_the_network);

/// Listeners of each family that a command could reach.
struct Listeners {
    tcp4: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    named: UnixListener,
    hidden: UnixListener,
    word: String,
}

impl Listeners {
    fn open(directory: &std::path::Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let word = unique();
        let path = directory.join("socket");
        let named = UnixListener::bind(&path).expect("a socket");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("permissions");
        let address = SocketAddr::from_abstract_name(&word).expect("a name");
        let all = Self {
            tcp4: TcpListener::bind("127.0.0.1:0").expect("a listener"),
            tcp6: TcpListener::bind("[::1]:0").ok(),
            udp: UdpSocket::bind("127.0.0.1:0").expect("a socket"),
            named,
            hidden: UnixListener::bind_addr(&address).expect("a socket"),
            word,
        };
        all.tcp4.set_nonblocking(true).expect("non-blocking");
        all.tcp6
            .iter()
            .for_each(|tcp6| tcp6.set_nonblocking(true).expect("non-blocking"));
        all.udp.set_nonblocking(true).expect("non-blocking");
        all.named.set_nonblocking(true).expect("non-blocking");
        all.hidden.set_nonblocking(true).expect("non-blocking");
        all
    }

    /// A program that tries each.
    fn attack(&self, directory: &std::path::Path) -> String {
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let (tcp4, tcp6) = (port(&self.tcp4), self.tcp6.as_ref().map_or(1, port));
        let udp = self.udp.local_addr().expect("an address").port();
        let (path, word) = (directory.join("socket"), &self.word);
        let program = format!(
            r#"use Socket qw(:all); my $i4 = inet_aton("127.0.0.1"); my $i6 = inet_pton(AF_INET6, "::1");
            sub try_it {{ my ($n, $ok) = @_; print "$n ", ($ok ? "open" : $!), "\n" }}
            sub stream {{ my ($n, $f, $a) = @_; my $s; try_it($n, socket($s, $f, SOCK_STREAM, 0) && connect($s, $a)); }}
            stream("tcp4", AF_INET, pack_sockaddr_in({tcp4}, $i4));
            stream("tcp6", AF_INET6, pack_sockaddr_in6({tcp6}, $i6));
            stream("named", AF_UNIX, pack_sockaddr_un("{path}"));
            stream("abstract", AF_UNIX, pack_sockaddr_un("\0{word}"));
            my $u; try_it("udp", socket($u, AF_INET, SOCK_DGRAM, 0) && send($u, "x", 0, pack_sockaddr_in({udp}, $i4)));
            for my $s ([raw => 2, 3, 1], [packet => 17, 3, 0], [vsock => 40, 1, 0], [alg => 38, 5, 0], [netlink => 16, 3, 0]) {{
                my $h; try_it($s->[0], socket($h, $s->[1], $s->[2], $s->[3])); }}"#,
            path = path.display()
        );
        format!("cat > attack.pl <<'END'\n{program}\nEND\nperl attack.pl; cat /proc/net/dev 2>/dev/null | grep -c :")
    }

    /// The families by which something arrived.
    fn reached(&self) -> Vec<&'static str> {
        std::thread::sleep(Duration::from_millis(100));
        let is_empty = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        let tcp6 = self
            .tcp6
            .as_ref()
            .map_or(Err(true), |tcp6| tcp6.accept().map(drop).map_err(is_empty));
        let found = [
            ("tcp4", self.tcp4.accept().map(drop).map_err(is_empty)),
            ("tcp6", tcp6),
            ("named", self.named.accept().map(drop).map_err(is_empty)),
            ("abstract", self.hidden.accept().map(drop).map_err(is_empty)),
            ("udp", self.udp.recv(&mut [0; 8]).map(drop).map_err(is_empty)),
        ];
        found
            .iter()
            .filter(|(_, arrived)| *arrived != Err(true))
            .map(|(name, _)| *name)
            .collect()
    }
}

async fn no_listener_is_reached(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let listeners = Listeners::open(world.directory.path());
    let result = server.run(&listeners.attack(world.directory.path())).await;
    let lines: Vec<_> = stdout(&result).lines().collect();
    assert!(lines.len() >= 10, "{result}");
    let open: Vec<_> = lines.iter().filter_map(|line| line.strip_suffix(" open")).collect();
    let reached = listeners.reached();
    match level {
        // Without a sandbox all of them are reached: the test sees what it has to.
        "host" => {
            assert!(
                ["tcp4", "named", "abstract", "udp"]
                    .iter()
                    .all(|name| reached.contains(name)),
                "{reached:?}"
            );
            assert!(!open.contains(&"raw") && !open.contains(&"packet"), "{open:?}");
        }
        "landlock" => {
            assert_eq!(reached, [""; 0], "{result}");
            assert_eq!(open, [""; 0], "{result}");
        }
        _ => {
            assert_eq!(reached, [""; 0], "{result}");
            // In a network of its own there is nothing but the command itself.
            assert_eq!(
                open.iter()
                    .filter(|name| **name != "netlink" && **name != "udp")
                    .count(),
                0,
                "{result}"
            );
            assert_eq!(
                lines.last(),
                Some(&"1"),
                "only the loopback device of its own: {result}"
            );
        }
    }
}

async fn the_operator_can_allow_the_network(level: &'static str) {
    if level == "host" {
        return;
    }
    let world = World::at(level).set("SHELL_NETWORK", "on");
    let Some(server) = world.server().await else { return };
    let listeners = Listeners::open(world.directory.path());
    let result = server.run(&listeners.attack(world.directory.path())).await;
    let reached = listeners.reached();
    assert!(["tcp4", "udp"].iter().all(|name| reached.contains(name)), "{result}");
    // Services on this host are not the network.
    assert!(
        !reached.contains(&"named") && !reached.contains(&"abstract"),
        "{result}"
    );
    let open: Vec<_> = stdout(&result)
        .lines()
        .filter_map(|line| line.strip_suffix(" open"))
        .collect();
    assert!(
        ["raw", "packet", "vsock", "alg"]
            .iter()
            .all(|name| !open.contains(name)),
        "{result}"
    );
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let description = tools[0].description.as_deref().expect("a description");
    assert!(description.contains("The network is available."), "{description}");
}
