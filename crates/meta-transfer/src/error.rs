use braid_api::Error;
use braid_meta_engine::EngineError;

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// At this byte of the file.
    #[error("the backup is damaged at byte {at}: {why}")]
    Damaged { at: u64, why: String },
    #[error("the backup ends at byte {at}, before its last piece: it was not written to its end, or is cut off")]
    CutOff { at: u64 },
    #[error("this is no backup of BraidFS's metadata")]
    NotOurs,
    #[error(
        "the backup was written by a newer version: its format is {found}, this program knows formats up to {known}"
    )]
    Newer { found: u32, known: u32 },
    #[error("reading the backup: {0}")]
    Read(std::io::Error),
    #[error("writing the backup: {0}")]
    Write(std::io::Error),
    #[error("{0}")]
    Source(String),
    /// Rows of the source do not come in the order of their keys, each once.
    #[error("the rows do not come in order: {0}")]
    Disorder(String),
    #[error("the store that is filled: {0}")]
    Target(EngineError),
    #[error("the store that is filled: {0}")]
    Rows(Error),
    /// What was written is not what is there.
    #[error("{differing} rows of the store that was filled are not as they were sent; the first is {first}")]
    Differs { differing: u64, first: String },
}
