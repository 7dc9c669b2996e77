use crate::body::decode;
use crate::remote::Remote;
use braid_api::data::{DataAnswer, DataNode, DataRequest};
use braid_api::meta::{Mark, MetaAnswer, MetaRequest, Namespace};
use braid_api::{Context, Result, When};
use bytes::Bytes;

/// A metadata server far away.
#[derive(Clone)]
pub struct RemoteNamespace(pub Remote);

/// A data server far away.
#[derive(Clone)]
pub struct RemoteDataNode(pub Remote);

impl Namespace for RemoteNamespace {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        let cx = Context { when: When::Durable, ..cx };
        let (body, _) = self.0.call(cx, &request, Bytes::new()).await?;
        decode(&body)
    }

    async fn execute_early(&self, cx: Context, request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        let (body, mark) = self.0.call(cx, &request, Bytes::new()).await?;
        // A server that gives no marks answers nothing early.
        let mark = if mark.is_empty() { Mark::default() } else { decode(&mark)? };
        Ok((decode(&body)?, mark))
    }
}

impl DataNode for RemoteDataNode {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let (body, payload) = self.0.call(cx, &request, payload).await?;
        Ok((decode(&body)?, payload))
    }
}
