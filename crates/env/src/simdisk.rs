//! A deterministic in-memory disk with a crash model.
