//! OpenLocal: hands a chunk's files to a reader on this host.

use super::copies::Look;
use crate::core::{Call, Core};
use crate::local::{Given, Kind, Local};
use braid_api::data::{LocalOpened, OpenLocal};
use braid_api::{Code, Error, Result};
use braid_data_store::StoreError;
use braid_env::DiskFile;
use braid_types::{ChunkId, Version};
use std::sync::Arc;

type Files = Vec<Arc<dyn DiskFile>>;

impl Core {
    pub async fn open_local(self: &Arc<Self>, call: &Call, m: OpenLocal) -> Result<LocalOpened> {
        let chunk = m.chunk;
        let here = |error: std::io::Error| Error::new(Code::NotSupported, format!("chunk {chunk}"), error);
        let Some(local) = self.chains.local.get().cloned().filter(|_| !call.any_trunc_gen()) else {
            let cause = "it hands out no files";
            return Err(Error::new(Code::NotSupported, format_args!("data server {}", self.id), cause));
        };
        let (given, files) = match m.copies {
            true => self.copy_for_reader(call, &m, &local).await?,
            false => self.chunk_for_reader(call, m.clone(), &local).await?,
        };
        let given = given.map_err(here)?;
        let now = u64::try_from(self.env.clock.now().0.as_nanos()).unwrap_or(u64::MAX);
        let socket = local.socket.to_string_lossy().into_owned();
        Ok(LocalOpened { ticket: local.ticket(given, files), word: given.word, value: given.value, now, socket })
    }

    async fn chunk_for_reader(
        self: &Arc<Self>,
        call: &Call,
        m: OpenLocal,
        local: &Arc<Local>,
    ) -> Result<(std::io::Result<Given>, Files)> {
        self.gate.check(&call.token, m.container)?;
        let _working = self.working(call, m.chunk, "the disk");
        let (of_work, local) = (*call, local.clone());
        let open = move |core: &Core| {
            core.cut(m.chunk, &of_work, &m.cuts)?;
            let given = local.give(m.chunk, Kind::One);
            // It may have been cut once more before the word was given.
            core.cut(m.chunk, &of_work, &m.cuts)?;
            core.gate.check(&of_work.token, m.container)?;
            Ok((given, core.files_of(m.chunk)?))
        };
        self.on_disk(call, open).await
    }

    /// A copy without any block that is not known to be right.
    async fn copy_for_reader(
        self: &Arc<Self>,
        call: &Call,
        m: &OpenLocal,
        local: &Arc<Local>,
    ) -> Result<(std::io::Result<Given>, Files)> {
        let (container, chunk) = (m.container, m.chunk);
        self.look_before(call, container, chunk, &m.cuts, None, Version::default()).await?;
        let given = local.give(chunk, Kind::Copies);
        let of_work = *call;
        let open = move |core: &Core| match core.look(&of_work, chunk)? {
            Look::Right(Some(_)) => core.files_of(chunk),
            Look::Right(None) => Err(core.error(chunk, &StoreError::NoSuchChunk(chunk))),
            Look::ToBeCut => Err(Error::new(Code::NotServing, format_args!("chunk {chunk}"), "it is being cut")),
        };
        let files = self.on_disk(call, open).await?;
        self.still_right(container, chunk, None, Version::default())?;
        Ok((given, files))
    }

    fn files_of(&self, chunk: ChunkId) -> Result<Files> {
        match self.store.local(chunk).map_err(|error| self.error(chunk, &error))? {
            Some(local) => Ok(local.files().map(Clone::clone).to_vec()),
            None => Err(Error::new(Code::NotSupported, format_args!("chunk {chunk}"), "it is in no file")),
        }
    }
}
