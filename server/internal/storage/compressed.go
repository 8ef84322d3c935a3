package storage

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage/compress"
)

// compressedResources are the resources of which every workspace has an object: only a tenth of their JSON differs between
// objects.
var compressedResources = map[schema.GroupResource]bool{
	tenancyv1alpha1.Resource("workspaces"):   true,
	corev1alpha1.Resource("logicalclusters"): true,
}

// dictionary is the common content of compressed objects. Never change it: a new dictionary needs a new mark.
//
//go:embed dictionary.json
var dictionary []byte

var (
	common = compress.NewDictionary(dictionary)
	// compressedMark is the prefix of compressed values. No JSON value and no encrypted value begins with it.
	compressedMark = []byte("\x00s1")
)

// mostDecompressed limits the bytes of a decompressed object: more than the limit of any request.
const mostDecompressed = 16 << 20

// compressed is a value.Transformer that compresses values before next encrypts them.
//
// Invariants:
//   - Every written value is the mark and the compressed object. In etcd it begins with the mark, or with what next puts around it.
//   - A mark has one dictionary forever (TestTheDictionaryDoesNotChange).
//   - A value without the mark is returned as it is: objects that a server without compression stored remain readable. Reading does not
//     make them stale; the next change of the object compresses it.
//   - A server that does not know a mark returns the compressed bytes as the object, and cannot decode them. A release must read a new
//     mark before a later release writes it, or the earlier release cannot run beside the later one or replace it.
//   - A value with a mark that cannot be decompressed is an unreadable object, and not an error of decryption.
type compressed struct{ next value.Transformer }

// TransformToStorage implements value.Transformer.
func (c compressed) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	short := make([]byte, 0, len(compressedMark)+len(data)/2)
	return c.next.TransformToStorage(ctx, common.Append(append(short, compressedMark...), data), dataCtx)
}

// TransformFromStorage implements value.Transformer.
func (c compressed) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := c.next.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, stale, err
	}
	short, ok := bytes.CutPrefix(data, compressedMark)
	if !ok {
		return data, stale, nil
	}
	data, err = common.Decode(short, mostDecompressed)
	if err != nil {
		return nil, stale, &unreadable{fmt.Errorf("decompressing an object: damaged data: %w", err)}
	}
	return data, stale, nil
}
