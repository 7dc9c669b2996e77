use braid_env::Address;
use tokio::sync::watch;

/// Where a peer may be reached, best first; replaceable while it is in use.
pub(crate) struct AddressBook(watch::Sender<Vec<Address>>);

impl AddressBook {
    pub fn new(addresses: Vec<Address>) -> Self {
        AddressBook(watch::Sender::new(sorted(addresses)))
    }

    /// Returns whether that changed anything.
    pub fn replace(&self, addresses: Vec<Address>) -> bool {
        let addresses = sorted(addresses);
        self.0.send_if_modified(|old| {
            let changed = *old != addresses;
            *old = addresses;
            changed
        })
    }

    pub fn list(&self) -> Vec<Address> {
        self.0.borrow().clone()
    }

    pub fn contains(&self, address: &Address) -> bool {
        self.0.borrow().contains(address)
    }

    pub fn watch(&self) -> watch::Receiver<Vec<Address>> {
        self.0.subscribe()
    }
}

/// Unix sockets first: half the cost of TCP, and one of another machine fails at once. (Or it is the socket of another
/// server here; the hello tells.)
fn sorted(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.sort_by_key(|address| matches!(address, Address::Tcp(_)));
    addresses
}
