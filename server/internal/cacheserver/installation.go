package cacheserver

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// InstallationHeader has the ID of the installation of a shard in its requests and, in the responses, the ID of the installation whose
// objects the cache server has.
const InstallationHeader = "X-Kcp-Installation"

// installationRecord is the record with the ID of the installation whose objects are stored.
const installationRecord = "cache-installation"

// maxInstallation limits the length of an ID.
const maxInstallation = 128

// checkInstallation returns an error if a shard of another installation sends a request. The first request of a root shard decides whose
// objects the cache server has. Until then, and for shards that name no installation, there is no error: certificates say who may write.
func (h *Handler) checkInstallation(w http.ResponseWriter, r *http.Request, who caller) error {
	if who.shard == "" {
		return nil
	}
	named := r.Header.Get(InstallationHeader)
	if len(named) > maxInstallation {
		return apierrors.NewBadRequest("the header " + InstallationHeader + " is too long")
	}
	owner, err := h.ownerOf(r.Context(), who.shard == peers.Root, named)
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	if owner == "" {
		return nil
	}
	w.Header().Set(InstallationHeader, owner)
	if named == "" || named == owner {
		return nil
	}
	return forbidden("this cache server has the objects of installation %s, and shard %q belongs to installation %s: correct "+
		"--cache-kubeconfig of the shard; each installation needs a cache server of its own", owner, who.shard, named)
}

// ownerOf returns the installation whose objects are stored; empty if it is not known yet. If claims is true, it becomes the named one
// then.
func (h *Handler) ownerOf(ctx context.Context, claims bool, named string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner != "" {
		return h.owner, nil
	}
	var err error
	if claims && named != "" {
		h.owner, err = h.config.Backend.ClaimRecord(ctx, installationRecord, named)
	} else {
		h.owner, err = h.config.Backend.Record(ctx, installationRecord)
	}
	return h.owner, err
}
