//! Bodies of messages, and a hello: refused or read, and what was read is written and read again as the same bytes.
#![no_main]

use braid_api::data::{DataAnswer, DataRequest};
use braid_api::meta::{MetaAnswer, MetaRequest};
use braid_wire::{Body, Hello, decode};
use libfuzzer_sys::fuzz_target;

fn again<T: serde::de::DeserializeOwned + Body>(bytes: &[u8]) {
    if let Ok(message) = decode::<T>(bytes) {
        let written = message.write(Vec::new()).expect("what was read can be written");
        let once_more = decode::<T>(&written).expect("what was written can be read");
        assert_eq!(once_more.write(Vec::new()).expect("and written again"), written);
    }
}

fuzz_target!(|bytes: &[u8]| {
    again::<MetaRequest>(bytes);
    again::<DataRequest>(bytes);
    let _ = decode::<MetaAnswer>(bytes);
    let _ = decode::<DataAnswer>(bytes);
    let _ = Hello::decode(bytes, "a peer");
});
