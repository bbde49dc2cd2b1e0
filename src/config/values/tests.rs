//! Which values are allowed, one kind after another.

use super::*;

#[test]
fn a_listening_address_is_an_address_with_a_port() {
    assert_eq!(listen("localhost:80"), Some("127.0.0.1:80".parse().unwrap()));
    assert!(listen("[::]:0").is_some());
    for invalid in [
        "",
        "8080",
        ":8080",
        "example.org:80",
        "127.0.0.1",
        "127.0.0.1:65536",
        "localhost:",
    ] {
        assert_eq!(listen(invalid), None, "{invalid:?}");
    }
}

#[test]
fn loopback_is_recognized_in_every_spelling() {
    for (address, local) in [
        ("127.0.0.1:1", true),
        ("127.9.9.9:1", true),
        ("[::1]:1", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("0.0.0.0:1", false),
        ("[::]:1", false),
        ("10.0.0.1:1", false),
    ] {
        assert_eq!(is_loopback(address.parse().unwrap()), local, "{address}");
    }
}

#[test]
fn seconds_are_positive_and_bounded() {
    let seconds = |text| span(text, 1.0, 3600.0);
    assert_eq!(seconds("0.5"), Some(Duration::from_millis(500)));
    for invalid in ["0", "-1", "NaN", "inf", "3601", "1e300", "2s", ""] {
        assert_eq!(seconds(invalid), None, "{invalid:?}");
    }
}

#[test]
fn a_base_url_has_no_path_user_or_query() {
    assert_eq!(base_url("https://Example.org/"), Some("https://example.org".to_owned()));
    assert_eq!(base_url("http://127.0.0.1:9"), Some("http://127.0.0.1:9".to_owned()));
    for invalid in [
        "example.org",
        "https://h/v1beta",
        "https://h?x",
        "https://u:p@h",
        "ftp://h",
        "https://",
        "h#f",
    ] {
        assert_eq!(base_url(invalid), None, "{invalid:?}");
    }
    assert_eq!(endpoint("eu.example.org"), Some("https://eu.example.org".to_owned()));
    assert_eq!(endpoint("host/path"), None);
}

#[test]
fn public_keys_come_over_a_channel_that_no_third_party_can_change() {
    assert!(https_url("https://issuer/jwks").is_some());
    assert!(https_url("http://localhost:9/jwks").is_some());
    assert!(https_url("http://[::1]:9/jwks").is_some());
    assert!(https_url("http://issuer/jwks").is_none());
    assert!(https_url("http://localhost.example.org/jwks").is_none());
}

#[test]
fn a_project_and_a_location_are_names() {
    for right in ["my-project-1", "example.com:old", "123456", "europe-west4"] {
        assert!(google_name(right).is_some(), "{right}");
    }
    for invalid in ["", "europe west4", "eu/../x", "https://eu", "ö"] {
        assert!(google_name(invalid).is_none(), "{invalid}");
    }
}

#[test]
fn a_database_elsewhere_is_reached_over_tls_or_that_is_reported() {
    for reported in [
        "postgres://u:p@db/gavel",
        "postgresql://10.0.0.7/gavel?sslmode=prefer",
        "postgres://db/gavel?sslmode=disable",
        "postgres:///gavel?host=db.example.org",
        "postgres://localhost/gavel?hostaddr=10.0.0.7",
    ] {
        assert!(is_clear_text_possible(reported), "{reported}");
    }
    for fine in [
        "sqlite:gavel.db",
        "postgres://localhost/gavel",
        "postgres://127.0.0.1:5432/gavel",
        "postgres://[::1]/gavel",
        "postgres://db/gavel?host=localhost",
        "postgres:///gavel?host=/run/postgresql",
        "postgres://db/gavel?sslmode=require",
        "postgres://db/gavel?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    ] {
        assert!(!is_clear_text_possible(fine), "{fine}");
    }
}

#[test]
fn a_database_is_named_with_its_kind() {
    for right in [
        "sqlite://gavel.db",
        "sqlite:gavel.db",
        "sqlite::memory:",
        "postgres://h/d",
        "postgresql://h/d",
        "postgres:///gavel?host=/run/postgresql",
    ] {
        assert!(database_url(right).is_some(), "{right}");
    }
    for invalid in [
        "gavel.db",
        "mysql://h/d",
        "sqlite:",
        "sqlite://",
        "postgres://",
        "postgres://u:p@:bad/x",
        "postgres://u:p@h:99999/x",
        "",
    ] {
        assert!(database_url(invalid).is_none(), "{invalid}");
    }
}
