/// The machines of a world, a process on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Machine {
    Meta,
    Data1,
    Data2,
    Data3,
    Client1,
    Client2,
    /// Only where chunks have several copies.
    Data4,
    /// Only where several metadata servers serve at once.
    Meta2,
    Meta3,
    Client3,
}

/// What runs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Meta,
    Data,
    Client,
}

impl Machine {
    /// All there are, see [`crate::Settings::machines`].
    pub const ALL: [Machine; 10] = [
        Machine::Meta,
        Machine::Data1,
        Machine::Data2,
        Machine::Data3,
        Machine::Client1,
        Machine::Client2,
        Machine::Data4,
        Machine::Meta2,
        Machine::Meta3,
        Machine::Client3,
    ];
    pub const METAS: [Machine; 3] = [Machine::Meta, Machine::Meta2, Machine::Meta3];
    /// In most scenarios; see [`crate::Settings::third_client`].
    pub const CLIENTS: [Machine; 2] = [Machine::Client1, Machine::Client2];

    /// The data server that a client is on one host with, where [`crate::Settings::is_beside`] says so.
    pub fn beside(self) -> Option<Machine> {
        match self {
            Machine::Client1 => Some(Machine::Data1),
            Machine::Client2 => Some(Machine::Data2),
            Machine::Client3 => Some(Machine::Data3),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Machine::Meta => "meta",
            Machine::Data1 => "data1",
            Machine::Data2 => "data2",
            Machine::Data3 => "data3",
            Machine::Data4 => "data4",
            Machine::Meta2 => "meta2",
            Machine::Meta3 => "meta3",
            Machine::Client1 => "client1",
            Machine::Client2 => "client2",
            Machine::Client3 => "client3",
        }
    }

    pub fn role(self) -> Role {
        match self {
            Machine::Meta | Machine::Meta2 | Machine::Meta3 => Role::Meta,
            Machine::Data1 | Machine::Data2 | Machine::Data3 | Machine::Data4 => Role::Data,
            Machine::Client1 | Machine::Client2 | Machine::Client3 => Role::Client,
        }
    }
}
