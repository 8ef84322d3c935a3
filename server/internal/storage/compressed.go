package storage

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// compressedResources are those of which every workspace has an object: a tenth of their JSON is what they do not have in common.
var compressedResources = map[schema.GroupResource]bool{
	tenancyv1alpha1.Resource("workspaces"):   true,
	corev1alpha1.Resource("logicalclusters"): true,
}

// dictionary is what compressed objects have in common. What is stored can be read with the dictionary of then only: another
// one must get a mark of its own, and this one must stay.
//
//go:embed dictionary.json
var dictionary []byte

var (
	common = s2.MakeDict(dictionary, nil)
	// compressedMark begins compressed values, as no JSON and no encrypted value does.
	compressedMark = []byte("\x00s1")
)

// mostDecompressed bounds what a stored object becomes, in bytes: more than any request may carry.
const mostDecompressed = 16 << 20

// compressed is a value.Transformer that compresses what next encrypts. It reads what is stored without compression as well.
type compressed struct{ next value.Transformer }

// TransformToStorage implements value.Transformer.
func (c compressed) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	short := append(bytes.Clone(compressedMark), common.Encode(nil, data)...)
	return c.next.TransformToStorage(ctx, short, dataCtx)
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
	if n, err := s2.DecodedLen(short); err != nil || n > mostDecompressed {
		return nil, stale, &unreadable{fmt.Errorf("decompressing an object: damaged data: decompressed length %d: %v", n, err)}
	}
	data, err = common.Decode(nil, short)
	if err != nil {
		return nil, stale, &unreadable{fmt.Errorf("decompressing an object: damaged data: %w", err)}
	}
	return data, stale, nil
}
