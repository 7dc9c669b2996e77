//! How a policy's layout lays a chunk over its chain, as the client needs to know it.
//!
//! A replica chain of any length has one place to write, its owner; what follows along the chain is the servers'
//! affair. Layouts whose clients talk to several servers for one range (RAIN, memory) get a variant here.

use braid_api::meta::ContainerInfo;
use braid_api::{Code, Error, Result};
use braid_types::{Layout, Policy, ServerId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    Replica,
}

impl Placement {
    pub fn of(policy: &Policy) -> Result<Placement> {
        match policy.layout {
            Layout::Replica { .. } => Ok(Placement::Replica),
            other => Err(Error::new(Code::NotSupported, format!("layout {other}"), "this client cannot write it yet")),
        }
    }

    /// Who orders writes to chunks of this container.
    pub fn owner(self, container: &ContainerInfo) -> Result<ServerId> {
        match self {
            Placement::Replica => container.chain.first().copied().ok_or_else(|| no_chain(container)),
        }
    }
}

fn no_chain(container: &ContainerInfo) -> Error {
    Error::new(Code::NoServers, format!("container {}", container.id), "its chain is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_first_of_the_chain() {
        let chain = vec![ServerId(3), ServerId(1)];
        let container = ContainerInfo { id: Default::default(), epoch: Default::default(), chain };
        let placement = Placement::of(&"replica:2".parse().unwrap()).unwrap();
        assert_eq!(placement.owner(&container), Ok(ServerId(3)));
        assert_eq!(placement.owner(&ContainerInfo { chain: vec![], ..container }).unwrap_err().code, Code::NoServers);
        assert!(Placement::of(&"rain:4+2".parse().unwrap()).is_err());
    }
}
