//! The contracts without their types. The traits of this crate give futures of unnamed types; an allocation or two a message make whoever is
//! above a single type whatever is below it, compiled once and not once for each.

use crate::data::{DataAnswer, DataRequest};
use crate::meta::{Mark, MetaAnswer, MetaRequest, Namespace, ServerInfo};
use crate::{Context, DataNode, DataPeers, Result};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A metadata server.
pub trait Meta: Send + Sync {
    /// [`Namespace::execute_early`].
    fn execute(&self, cx: Context, request: MetaRequest) -> BoxFuture<'_, Result<(MetaAnswer, Mark)>>;
}

impl<N: Namespace> Meta for N {
    fn execute(&self, cx: Context, request: MetaRequest) -> BoxFuture<'_, Result<(MetaAnswer, Mark)>> {
        Box::pin(Namespace::execute_early(self, cx, request))
    }
}

/// The way to metadata servers that serve at once.
pub trait MetaPeers: Send + Sync + 'static {
    /// Calls are repeated until their deadline where errors allow that.
    fn meta(&self, addresses: &[String]) -> Arc<dyn Meta>;
}

/// A data server.
pub trait Node: Send + Sync + 'static {
    fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> BoxFuture<'_, Result<(DataAnswer, Bytes)>>;
}

impl<N: DataNode> Node for N {
    fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> BoxFuture<'_, Result<(DataAnswer, Bytes)>> {
        Box::pin(DataNode::execute(self, cx, request, payload))
    }
}

/// The way to data servers.
pub trait Peers: Send + Sync + 'static {
    fn node(&self, server: &ServerInfo) -> Arc<dyn Node>;
}

impl<P: DataPeers> Peers for P {
    fn node(&self, server: &ServerInfo) -> Arc<dyn Node> {
        DataPeers::node(self, server)
    }
}

/// [`DataPeers`] of any type.
#[derive(Clone)]
pub struct AnyPeers(Arc<dyn Peers>);

impl AnyPeers {
    pub fn new(peers: impl DataPeers) -> AnyPeers {
        AnyPeers(Arc::new(peers))
    }
}

/// [`DataNode`] of any type.
pub struct AnyNode(Arc<dyn Node>);

impl DataPeers for AnyPeers {
    type Node = AnyNode;

    fn node(&self, server: &ServerInfo) -> Arc<AnyNode> {
        Arc::new(AnyNode(self.0.node(server)))
    }
}

impl DataNode for AnyNode {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        self.0.execute(cx, request, payload).await
    }
}
