//! A mounted connection to the kernel, before anyone answers its requests.

use crate::abi::OUT_HEADER_BYTES;
use crate::buffers::Pool;
use crate::decode::Header;
use crate::device::{read_request, write_message};
use crate::fields::Malformed;
use crate::init::{self, Config, Negotiated, Offer};
use crate::mount::{Mount, MountOptions};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// A mount that waits for `serve`. Dropping it unmounts.
#[derive(Debug)]
pub struct Channel {
    pub(crate) mount: Mount,
    pub(crate) device: Arc<OwnedFd>,
}

impl Channel {
    /// Mounts at `path`. Until `serve` whoever looks at the mount waits.
    pub fn mount(path: impl AsRef<Path>, options: &MountOptions) -> io::Result<Self> {
        let (mount, device) = Mount::new(path.as_ref(), options)?;
        Ok(Self { mount, device: Arc::new(device) })
    }

    /// Answers the kernel's INIT.
    pub(crate) fn handshake(&self, config: &Config, pool: &Arc<Pool>) -> io::Result<Negotiated> {
        let mut buffer = pool.take()?;
        let space = Arc::get_mut(&mut buffer).ok_or(io::ErrorKind::OutOfMemory)?.space();
        loop {
            let bytes = read_request(&self.device, space)?.ok_or(io::ErrorKind::NotConnected)?;
            let (header, offer) = open_offer(&space[..bytes], config).map_err(io::Error::other)?;
            let reply = |error, body: &[u8]| write_message(&self.device, error, header.unique, &[IoSlice::new(body)]);
            match offer {
                Offer::Accept(negotiated) => {
                    let answer = init::encode(&negotiated, config);
                    debug_assert_eq!(answer.as_slice().len(), 80 - OUT_HEADER_BYTES);
                    reply(0, answer.as_slice())?;
                    return Ok(negotiated);
                }
                Offer::Newer => reply(0, init::encode_major().as_slice())?,
                Offer::Refuse(reason) => {
                    reply(-libc::EPROTO, &[])?;
                    return Err(init::refused(reason));
                }
            }
        }
    }
}

fn open_offer(request: &[u8], config: &Config) -> Result<(Header, Offer), Malformed> {
    let header = Header::decode(request)?;
    let offer = init::negotiate(&header, request, config)?;
    Ok((header, offer))
}
