package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

const anyCluster = `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1","metadata":{"name":"cluster","uid":"612d50da-8588-4be2-97a6-1aa452914be1","generation":1,` +
	`"creationTimestamp":"2026-11-21T11:13:15Z","labels":{"tenancy.kcp.io/phase":"Ready"},"annotations":{"core.kcp.io/shard":"root","internal.tenancy.kcp.io/type":"root:organization",` +
	`"kcp.io/cluster":"0hxe8mh6li34eycg","kcp.io/path":"root:team-a"},"finalizers":["core.kcp.io/logicalcluster-deletion"]},"spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1",` +
	`"resource":"workspaces","name":"team-a","cluster":"root","uid":"cd860cf3-8a88-42a3-9877-036273c95241"},"createdBy":{"username":"bob","groups":["system:authenticated"]},` +
	`"initializers":["root:universal","system:apibindings"]},"status":{"URL":"https://localhost:6443/clusters/0hxe8mh6li34eycg","phase":"Ready"}}`

func TestCompressedObjectsAreDecompressed(t *testing.T) {
	ctx, c := context.Background(), compressed{identity.NewEncryptCheckTransformer()}
	for _, object := range []string{anyCluster, `{}`, `{"metadata":{"annotations":{"a":"` + strings.Repeat("long ", 100_000) + `"}}}`} {
		stored, err := c.TransformToStorage(ctx, []byte(object), value.DefaultContext("key"))
		if err != nil {
			t.Fatal(err)
		}
		if object == anyCluster && len(stored) > len(object)/3 {
			t.Errorf("%d bytes are stored as %d", len(object), len(stored))
		}
		read, stale, err := c.TransformFromStorage(ctx, stored, value.DefaultContext("key"))
		if err != nil || stale || string(read) != object {
			t.Errorf("%.200s became %.200s, stale %t: %v", object, read, stale, err)
		}
		before, _, err := c.TransformFromStorage(ctx, []byte(object), value.DefaultContext("key"))
		if err != nil || string(before) != object {
			t.Errorf("what is not compressed became %.200s: %v", before, err)
		}
	}
}

func TestDamagedValuesAreErrors(t *testing.T) {
	ctx, c := context.Background(), compressed{identity.NewEncryptCheckTransformer()}
	stored, err := c.TransformToStorage(ctx, []byte(anyCluster), value.DefaultContext("key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{stored[:len(stored)/2], compressedMark, append(bytes.Clone(compressedMark), 0xff, 0xff, 0xff, 0xff, 0x0f), []byte("k8s:enc:aescbc:v1:key:x")} {
		if read, _, err := c.TransformFromStorage(ctx, damaged, value.DefaultContext("key")); err == nil {
			t.Errorf("%q was read as %q", damaged, read)
		}
	}
}

// A change of the dictionary makes stored objects unreadable: add another dictionary instead.
func TestTheDictionaryDoesNotChange(t *testing.T) {
	const sum = "50d22151d47787dabc19174698889f734361e80700cdf4042283cb8da3af7216"
	if got := fmt.Sprintf("%x", sha256.Sum256(dictionary)); got != sum {
		t.Errorf("the dictionary has the sum %s, want %s", got, sum)
	}
}
