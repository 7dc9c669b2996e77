//! Something between an engine and its server that counts and keeps what is sent, and can cut the connection where it hurts.

use parking_lot::{Condvar, Mutex};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// What is done to the next message that holds a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It never reaches the server.
    BeforeSent,
    /// The server has answered it, and nobody hears the answer.
    AnswerLost,
    /// The engine sees its connection cut, the message waits somewhere until [`Proxy::deliver`].
    HeldBack,
    /// The same, and nobody gets a new connection until [`Proxy::open`].
    Gone,
}

#[derive(Default)]
struct State {
    messages: Vec<String>,
    cut: Option<Cut>,
    cuts: u32,
    held: Vec<(UnixStream, Vec<u8>)>,
    closed: bool,
}

pub struct Proxy {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    pub fn start(server: &Path) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::<Mutex<State>>::default();
        let (shared, server) = (state.clone(), server.to_owned());
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.lock().closed {
                    continue;
                }
                let (state, server) = (shared.clone(), server.clone());
                thread::spawn(move || serve(client, server, &state));
            }
        });
        Proxy { port, state }
    }

    /// The statements of all messages since the last call: a message is a round trip.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().messages)
    }

    pub fn cut(&self, cut: Cut) {
        self.state.lock().cut = Some(cut);
    }

    pub fn open(&self) {
        self.state.lock().closed = false;
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u32 {
        self.state.lock().cuts
    }

    /// The server gets what was held back, and answers it before this returns. How many messages it was.
    pub fn deliver(&self) -> usize {
        let held = std::mem::take(&mut self.state.lock().held);
        for (mut server, message) in held.iter().map(|(server, message)| (server, message)) {
            server.write_all(message).expect("the server is there");
            server.shutdown(Shutdown::Write).expect("the server is there");
            // Until it has closed its end: everything is carried out.
            let _ = server.read_to_end(&mut Vec::new());
        }
        held.len()
    }
}

/// What comes when answers do not go on.
#[derive(Default)]
struct Muted {
    on: bool,
    bytes: Vec<u8>,
    ended: bool,
}

impl Muted {
    /// How many statements have been answered: one packet each, as none of them has rows. An error is the last.
    fn answered(&self) -> (usize, bool) {
        let (mut count, mut rest, mut failed) = (0, self.bytes.as_slice(), false);
        while let [a, b, c, _, ..] = *rest {
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            let Some(packet) = rest.get(4..4 + length) else { break };
            failed |= packet.first() == Some(&0xff);
            rest = &rest[4 + length..];
            count += 1;
        }
        (count, failed)
    }
}

#[derive(Default)]
struct Mute {
    state: Mutex<Muted>,
    came: Condvar,
}

fn serve(client: TcpStream, server: PathBuf, state: &Mutex<State>) {
    let Ok(server) = UnixStream::connect(server) else { return };
    client.set_nodelay(true).expect("a socket");
    let mute = Arc::new(Mute::default());
    let answers = {
        let (client, server, mute) =
            (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"), mute.clone());
        thread::spawn(move || answers(server, client, &mute))
    };
    let kept = requests(&client, &server, state, &mute);
    let _ = client.shutdown(Shutdown::Both);
    if !kept {
        let _ = server.shutdown(Shutdown::Both);
        let _ = answers.join();
    }
}

/// From the engine to the server. Whether the server's end is to stay open.
fn requests(mut client: &TcpStream, mut server: &UnixStream, state: &Mutex<State>, mute: &Mute) -> bool {
    loop {
        let mut header = [0; 4];
        if client.read_exact(&mut header).is_err() {
            return false;
        }
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        let mut packet = header.to_vec();
        packet.resize(4 + length, 0);
        if client.read_exact(&mut packet[4..]).is_err() {
            return false;
        }
        // A command begins with number 0, and 3 is a query.
        if header[3] == 0 && packet.get(4) == Some(&3) {
            let text = String::from_utf8_lossy(&packet[5..]).into_owned();
            let mut locked = state.lock();
            let cut = if text.ends_with("COMMIT") { locked.cut.take() } else { None };
            locked.messages.push(text);
            locked.cuts += u32::from(cut.is_some());
            match cut {
                Some(Cut::BeforeSent) => return false,
                Some(Cut::HeldBack | Cut::Gone) => {
                    locked.closed = cut == Some(Cut::Gone);
                    locked.held.push((server.try_clone().expect("a socket"), packet));
                    return true;
                }
                Some(Cut::AnswerLost) => {
                    drop(locked);
                    mute.state.lock().on = true;
                    let statements = packet.iter().filter(|byte| **byte == b';').count() + 1;
                    let _ = server.write_all(&packet);
                    let under_way = |muted: &mut Muted| {
                        let (answered, failed) = muted.answered();
                        answered < statements && !failed && !muted.ended
                    };
                    mute.came.wait_while(&mut mute.state.lock(), under_way);
                    return false;
                }
                None => {}
            }
        }
        if server.write_all(&packet).is_err() {
            return false;
        }
    }
}

fn answers(mut server: UnixStream, mut client: TcpStream, mute: &Mute) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = server.read(&mut buffer).unwrap_or(0);
        let mut state = mute.state.lock();
        if state.on {
            state.bytes.extend_from_slice(&buffer[..read]);
            state.ended |= read == 0;
            mute.came.notify_all();
        } else if read > 0 && client.write_all(&buffer[..read]).is_err() {
            return;
        }
        if read == 0 {
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
    }
}
