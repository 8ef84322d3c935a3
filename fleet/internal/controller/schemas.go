package controller

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/virtual"
)

// schemasPath is the path of the exported schemas in the view of an agent, which compares them with those of its cluster.
const schemasPath = "/schemas"

// exported are the exported schemas as agents read them. All agents share the content.
type exported struct {
	content []byte
	tag     string
}

// publish makes the exported schemas available to the agents.
func (f *fleet) publish(schemas []apisv1alpha1.APIResourceSchema) error {
	for i := range schemas {
		schemas[i].ManagedFields, schemas[i].ResourceVersion = nil, ""
	}
	if schemas == nil {
		schemas = []apisv1alpha1.APIResourceSchema{}
	}
	content, err := json.Marshal(schemas)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	if former := f.schemas.Load(); former == nil || former.tag != tag {
		f.schemas.Store(&exported{content, tag})
	}
	return nil
}

// serveSchemas serves the exported schemas.
func (v view) serveSchemas(w http.ResponseWriter, r *http.Request) {
	now := v.schemas()
	if now == nil {
		virtual.Fail(w, r, apierrors.NewServiceUnavailable("the fleet has not read the exported schemas yet"))
		return
	}
	w.Header().Set("Etag", now.tag)
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(now.content))
}
