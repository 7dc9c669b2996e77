//! Files handed out between processes of one host, by the path of a socket.

use braid_env::{BoxFuture, DiskFile, Tickets};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Default)]
pub struct Handing(Mutex<BTreeMap<PathBuf, Arc<dyn Tickets>>>);

/// Nobody answers at the path any more when this is dropped, with the process.
struct Open {
    handing: Arc<Handing>,
    path: PathBuf,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.handing.0.lock().remove(&self.path);
    }
}

impl Handing {
    pub fn hand_out(self: &Arc<Self>, path: &Path, from: Arc<dyn Tickets>) -> BoxFuture<'static, ()> {
        self.0.lock().insert(path.to_owned(), from);
        let open = Open { handing: self.clone(), path: path.to_owned() };
        Box::pin(async move {
            let _open = open;
            std::future::pending().await
        })
    }

    pub fn take(&self, path: &Path, ticket: u64) -> io::Result<Vec<Arc<dyn DiskFile>>> {
        let from = self.0.lock().get(path).cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
        match from.redeem(ticket) {
            files if files.is_empty() => Err(io::ErrorKind::NotFound.into()),
            files => Ok(files),
        }
    }
}
