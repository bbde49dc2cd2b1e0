//! A DNS server on loopback that answers by script.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UdpSocket;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// A record of an answer.
#[derive(Debug, Clone)]
pub(super) enum Record {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    /// The name, and an address of the other name.
    Cname(&'static str, Ipv4Addr),
}

impl Record {
    fn kind(&self) -> u16 {
        match self {
            Self::A(_) | Self::Cname(..) => A,
            Self::Aaaa(_) => AAAA,
        }
    }

    fn write(&self, answer: &mut Vec<u8>) -> u16 {
        // A pointer to the name in the question.
        const ASKED: &[u8] = &[0xc0, 12];
        match self {
            Self::A(address) => write(answer, ASKED, A, &address.octets()),
            Self::Aaaa(address) => write(answer, ASKED, AAAA, &address.octets()),
            Self::Cname(name, address) => {
                let name = encoded(name);
                write(answer, ASKED, CNAME, &name);
                write(answer, &name, A, &address.octets());
                return 2;
            }
        }
        1
    }
}

fn write(answer: &mut Vec<u8>, owner: &[u8], kind: u16, data: &[u8]) {
    answer.extend_from_slice(owner);
    answer.extend_from_slice(&kind.to_be_bytes());
    // Of the Internet, and not to be kept.
    answer.extend_from_slice(&[0, 1, 0, 0, 0, 0]);
    answer.extend_from_slice(&(data.len() as u16).to_be_bytes());
    answer.extend_from_slice(data);
}

fn encoded(name: &str) -> Vec<u8> {
    let labels = name
        .split('.')
        .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// The server.
#[derive(Debug, Clone, Default)]
pub(super) struct Dns(Arc<Mutex<HashMap<(String, u16), usize>>>);

impl Dns {
    /// Answers at 127.0.0.1:53. The script gets a name, and how often its addresses were asked for before.
    pub(super) async fn start(script: impl Fn(&str, usize) -> Vec<Record> + Send + Sync + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).await.expect("the DNS port");
        let dns = Self::default();
        let asked = dns.0.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.expect("a query");
                let (name, kind, end) = question(&buffer[..length]);
                let before = {
                    let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = asked.entry((name.clone(), kind)).or_default();
                    *count += 1;
                    *count - 1
                };
                let records = script(&name, before);
                let answer = answer(&buffer[..end], kind, &records);
                socket.send_to(&answer, from).await.expect("sent");
            }
        });
        dns
    }

    /// How often the IPv4 addresses of a name were asked for.
    pub(super) fn lookups(&self, name: &str) -> usize {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(&(name.to_owned(), A)).copied().unwrap_or_default()
    }
}

/// The name, the kind of record, and where the question ends.
fn question(query: &[u8]) -> (String, u16, usize) {
    let mut at = 12;
    let mut labels = Vec::new();
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    (
        labels.join("."),
        u16::from_be_bytes([query[at + 1], query[at + 2]]),
        at + 5,
    )
}

fn answer(query: &[u8], kind: u16, records: &[Record]) -> Vec<u8> {
    let mut answer = query.to_vec();
    let mut count = 0;
    for record in records.iter().filter(|record| record.kind() == kind) {
        count += record.write(&mut answer);
    }
    let code = if records.is_empty() { 3 } else { 0 };
    answer[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    answer[6..8].copy_from_slice(&u16::to_be_bytes(count));
    answer[8..12].fill(0);
    answer
}
