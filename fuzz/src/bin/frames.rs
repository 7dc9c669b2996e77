//! A stream of frames from a broken or hostile peer: an error at the worst, never a panic, never more than was sent.
#![no_main]

use braid_wire::{BufferPool, FrameReader, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut reader = FrameReader::new(bytes, Limits::default(), BufferPool::new(0));
        while let Ok(Some(frame)) = reader.next().await {
            assert!(frame.body.len() + frame.payload.len() <= bytes.len());
        }
    });
});
