// A client of the Kubernetes API in a pod: npm's @kubernetes/client-node as it is, with the configuration that it finds there.
import { readFileSync } from 'node:fs';
import { CoreV1Api, KubeConfig, Watch } from '@kubernetes/client-node';

const NAME = 'made-by-javascript';
const namespace = readFileSync('/var/run/secrets/kubernetes.io/serviceaccount/namespace', 'utf8').trim();
const config = new KubeConfig();
config.loadFromCluster();
const api = config.makeApiClient(CoreV1Api);

const pods = await api.listNamespacedPod({ namespace });
console.log('pods', ...pods.items.map((pod) => pod.metadata.name));

const { metadata } = await api.listNamespacedConfigMap({ namespace });
const seen = new Promise((resolve, reject) => {
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    const event = (type, object) => type === 'ADDED' && object.metadata.name === NAME && resolve();
    const end = (error) => reject(error ?? new Error('the watch has ended'));
    new Watch(config).watch(path, { resourceVersion: metadata.resourceVersion, timeoutSeconds: 20 }, event, end);
});
await api.createNamespacedConfigMap({ namespace, body: { metadata: { name: NAME }, data: { n: '1' } } });
await seen;
console.log('watched', NAME);

try {
    await api.listNode();
} catch (refused) {
    console.log('nodes', refused.code);
}
process.exit(0);
