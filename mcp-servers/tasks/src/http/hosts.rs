//! The host names under which the server may be reached. The check prevents web pages from reaching a local server
//! through its user's browser (DNS rebinding).

use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Allows `hosts`, loopback names if there are none, every name for `*`. A browser's `Origin` must be one of them too.
pub(super) fn allow(config: StreamableHttpServerConfig, hosts: &[String]) -> StreamableHttpServerConfig {
    if hosts.iter().any(|host| host == "*") {
        return config.disable_allowed_hosts();
    }
    let hosts: Vec<String> = if hosts.is_empty() {
        LOOPBACK.map(str::to_owned).to_vec()
    } else {
        hosts.to_vec()
    };
    config
        .with_allowed_origins(hosts.iter().flat_map(|host| origins(host)))
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
}

/// The web origins that belong to an allowed host.
fn origins(host: &str) -> Vec<String> {
    let bare_v6 = host.contains("::") && !host.starts_with('[');
    let host = if bare_v6 { format!("[{host}]") } else { host.to_owned() };
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = if has_port { "" } else { ":*" };
    ["http", "https"]
        .map(|scheme| format!("{scheme}://{host}{port}"))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::origins;

    #[test]
    fn an_origin_keeps_the_port_of_its_host_or_allows_any() {
        assert_eq!(
            origins("tasks.internal"),
            ["http://tasks.internal:*", "https://tasks.internal:*"]
        );
        assert_eq!(origins("localhost:80"), ["http://localhost:80", "https://localhost:80"]);
        assert_eq!(origins("::1"), ["http://[::1]:*", "https://[::1]:*"]);
    }
}
