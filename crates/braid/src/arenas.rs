//! How the C library's allocator spreads memory over threads.

/// One pool of memory for each processor, where glibc makes up to eight: what a thread has given back waits in its pool
/// for threads of that pool, and a mount has a dozen that take buffers of 1 MiB. Measured with two processors, eight
/// writers and readers and 20 MiB of buffers allowed: 72 to 76 MiB in all with two pools, 76 to 79 with sixteen.
///
/// To be called before there are threads.
pub fn one_for_each_processor() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 64));
        // SAFETY: it only sets a parameter of the allocator, which takes any positive number.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, processors as libc::c_int);
        }
    }
}
