//! Health pages and metrics of every process.

use super::{Cluster, say_skipped};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// What a process shows of itself under this name, without labels.
pub fn metric(at: &str, name: &str) -> u64 {
    let (_, text) = get(at, "/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not among the metrics")).parse().unwrap()
}

/// The answer's first line and its text.
pub fn get(at: &str, path: &str) -> (String, String) {
    let host = at.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), text.to_owned())
}

/// The names of the metrics; each is told once, with a word for it and its kind.
fn names(text: &str) -> BTreeSet<&str> {
    let of = |line: &'static str| text.lines().filter_map(move |rest| rest.strip_prefix(line)?.split_once(' '));
    let helped: Vec<&str> = of("# HELP ").filter(|(_, help)| help.len() > 5).map(|(name, _)| name).collect();
    let typed: Vec<&str> = of("# TYPE ").map(|(name, _)| name).collect();
    assert_eq!(helped, typed);
    let names: BTreeSet<&str> = typed.iter().copied().collect();
    assert_eq!(names.len(), typed.len(), "told twice: {typed:?}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(names.contains(name.split('{').next().unwrap()), "{line}");
        value.parse::<u64>().unwrap();
    }
    names
}

#[test]
fn every_process_has_a_health_page_and_metrics_after_up() {
    let c = Cluster::unmade();
    let can_mount = Path::new("/dev/fuse").exists();
    let up = if can_mount { c.up_mounted(&[]) } else { c.up() };
    assert_eq!(up.code, 0, "{}", up.err);
    if can_mount {
        std::fs::write(c.mount_point().join("f"), super::pattern(300_000)).unwrap();
    } else {
        say_skipped("the page of a mount: there is no /dev/fuse");
    }
    let status: serde_json::Value = serde_json::from_str(&c.says("admin status --json")).unwrap();
    let shown = c.says("admin status");
    for (name, metric) in [
        ("metadata", "braid_meta_inodes"),
        ("data-1", "braid_data_free_bytes"),
        ("data-2", "braid_data_messages_total"),
        ("mount", "braid_mount_lost_bytes_total"),
    ] {
        if name == "mount" && !can_mount {
            continue;
        }
        let at = status["pages"][name].as_str().unwrap_or_else(|| panic!("no page of {name}: {status}"));
        assert!(at.starts_with("http://127.0.0.1:") && shown.contains(at) && up.out.contains(at), "{at}: {}", up.out);
        let (code, line) = get(at, "/health");
        assert!(code.ends_with("200 OK") && line.lines().count() == 1, "{name}: {code}: {line}");
        let (code, text) = get(at, "/metrics");
        assert!(code.ends_with("200 OK") && names(&text).contains(metric), "{name}: {text}");
    }
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    let left = std::fs::read_dir(c.root().join("run")).unwrap().flatten();
    assert!(!left.into_iter().any(|entry| entry.path().extension().is_some_and(|end| end == "http")));
}

/// Ports in a row that nobody listens at now.
fn free_ports(count: u16) -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    (first..).step_by(count.into()).find(|&port| (port..port + count).all(is_free)).unwrap()
}

#[test]
fn a_fixed_port_is_that_of_the_first_data_server_and_the_others_follow() {
    let c = Cluster::unmade();
    let port = free_ports(2);
    let set = |setting: &str, port: u16| format!("{setting}=127.0.0.1:{port}");
    let clash = c.up_with(&["--set", &set("data.http", port), "--set", &set("metadata.http", port + 1)]);
    assert_eq!((clash.code, clash.err.lines().count(), clash.out.as_str()), (1, 1, ""), "{}", clash.err);
    assert!(clash.err.contains("metadata.http") && clash.err.contains("is among them"), "{}", clash.err);
    assert!(!c.root().exists(), "nothing was made");
    for _ in 0..2 {
        let up = c.up_with(&["--set", &set("data.http", port)]);
        assert_eq!(up.code, 0, "{}", up.err);
        for n in 0..2 {
            let (code, line) = get(&format!("http://127.0.0.1:{}", port + n), "/health");
            assert!(code.ends_with("200 OK") && line.contains(&format!("data server {}", n + 1)), "{code} {line}");
        }
    }
}
