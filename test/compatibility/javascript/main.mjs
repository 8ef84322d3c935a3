// Lists, watches, patches and applies ConfigMaps, and fails if the server does not do what it is asked.
import assert from 'node:assert/strict';
import {
  ApiextensionsV1Api, CoreV1Api, CustomObjectsApi, KubeConfig, KubernetesObjectApi, PatchStrategy, Watch, setHeaderOptions,
} from '@kubernetes/client-node';

const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);
const objects = KubernetesObjectApi.makeApiClient(config);
const namespace = 'default';

const waiting = [];
const events = [];
const stop = await new Watch(config).watch(
  '/api/v1/namespaces/default/configmaps', { fieldSelector: 'metadata.name=shop' },
  (type, object) => {
    events.push(`${type} ${object.data?.price}`);
    waiting.filter(({ event }) => events.includes(event)).forEach(({ resolve }) => resolve());
  },
  (err) => { if (err && err.name !== 'AbortError') throw err; },
);
const seen = (event) => new Promise((resolve) => events.includes(event) ? resolve() : waiting.push({ event, resolve }));

await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'shop' }, data: { price: '1' } } });
await seen('ADDED 1');
const list = await core.listNamespacedConfigMap({ namespace });
assert(list.items.some((item) => item.metadata.name === 'shop'), 'the list lacks the ConfigMap');

const patches = [
  [PatchStrategy.MergePatch, { data: { price: '2' } }, '2'],
  [PatchStrategy.StrategicMergePatch, { data: { price: '3' } }, '3'],
  [PatchStrategy.JsonPatch, [{ op: 'replace', path: '/data/price', value: '4' }], '4'],
];
for (const [strategy, body, price] of patches) {
  const patched = await core.patchNamespacedConfigMap({ name: 'shop', namespace, body }, setHeaderOptions('Content-Type', strategy));
  assert.equal(patched.data.price, price);
  await seen(`MODIFIED ${price}`);
}

const wanted = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'shop', namespace }, data: { price: '5' } };
const applied = await objects.patch(wanted, undefined, undefined, 'compatibility', true, PatchStrategy.ServerSideApply);
assert.equal(applied.data.price, '5');
assert(applied.metadata.managedFields.some((m) => m.manager === 'compatibility' && m.operation === 'Apply'), 'no manager owns the applied fields');
await seen('MODIFIED 5');

const names = { plural: 'counters', singular: 'counter', kind: 'Counter', listKind: 'CounterList' };
await config.makeApiClient(ApiextensionsV1Api).createCustomResourceDefinition({ body: {
  metadata: { name: 'counters.shop.example.com' },
  spec: {
    group: 'shop.example.com', scope: 'Namespaced', names,
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: {
      type: 'object', properties: { spec: { type: 'object', properties: { price: { type: 'integer' } } } },
    } } }],
  },
} });
const counter = { apiVersion: 'shop.example.com/v1', kind: 'Counter', metadata: { name: 'apples', namespace }, spec: { price: 1 } };
const custom = config.makeApiClient(CustomObjectsApi);
const of = { group: 'shop.example.com', version: 'v1', namespace, plural: names.plural };
for (;;) { // until the definition is established
  try {
    await custom.createNamespacedCustomObject({ ...of, body: counter });
    break;
  } catch (err) {
    if (err.code !== 404) throw err;
  }
}
assert.equal((await custom.listNamespacedCustomObject(of)).items[0].spec.price, 1);

await core.deleteNamespacedConfigMap({ name: 'shop', namespace });
await seen('DELETED 5');
stop.abort();
