package cacheserver

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
)

// InstanceHeader is in every response to a caller with access: the ID of the store. With another ID, the store is new or was restored,
// and each shard compares all that it has offered.
const InstanceHeader = "X-Kcp-Cache-Instance"

// bookmarkInterval is the maximum age of the last bookmark of a watch. Etcd keeps history for at least five minutes.
const bookmarkInterval = time.Minute

// minWatch is the minimum duration of watches without a timeout.
const minWatch = 30 * time.Minute

// Config contains the inputs of a Handler.
type Config struct {
	// Backend stores the objects. Nothing else is stored below its root.
	Backend *storage.Backend
	// Peers are the authorities of the certificates of shards.
	Peers peers.Authorities
	// Administrators authenticates clients that are no shards; nil if there are none. Members of system:masters may read.
	Administrators authenticator.Request
	// Scrapers authenticates clients that may read the metrics, and nothing else; nil if there are none.
	Scrapers authenticator.Request
	// AdministratorsWrite lets members of system:masters write, as upstream's shards do.
	AdministratorsWrite bool
	// Stopping ends when the server begins to stop: watches end then. nil never ends.
	Stopping context.Context
	Clock    clock.Clock
}

// Handler serves the API of the cache server.
type Handler struct {
	config    Config
	access    access
	limits    *limits
	resources *resources
	pages     *pages
	parts     *parts

	mu       sync.Mutex
	instance string // empty until it is known
	owner    string // the installation; empty until it is known
}

// New returns a handler.
func New(config Config) (*Handler, error) {
	if config.Stopping == nil {
		config.Stopping = context.Background()
	}
	l := newLimits()
	all, err := newResources(config.Backend, l)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		config: config, limits: l, resources: all, pages: newPages(config.Clock), parts: newParts(config.Backend, config.Clock),
		access: access{administrators: config.Administrators, scrapers: config.Scrapers, administratorsWrite: config.AdministratorsWrite},
	}
	if config.Peers != nil {
		h.access.peers = peers.NewVerifier(config.Peers, clock.RealClock{})
	}
	return h, nil
}

// WithCache passes requests for the API of a cache server to cache, and others to next. It must be called before authentication: shards are
// no users.
func WithCache(cache, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, Prefix) || r.URL.Path+"/" == Prefix {
			cache.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Run makes etcd report progress to watches, which then send bookmarks, until ctx ends. A watch that resumes at a bookmark finds the
// changes since then, and not an error about compacted history. Run also purges the parts of removed shards.
func (h *Handler) Run(ctx context.Context) {
	purging := make(chan struct{})
	go func() {
		defer close(purging)
		h.parts.run(ctx)
	}()
	defer func() { <-purging }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.config.Clock.After(bookmarkInterval):
		}
		h.pages.expire()
		if err := h.config.Backend.Progress(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("Requesting progress of watches failed", decisionlog.Reason, err)
		}
	}
}

// ServeHTTP serves a request below Prefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	who, err := h.access.callerOf(r)
	if err != nil {
		return err
	}
	t, known := parse(r.URL)
	writes := r.Method != http.MethodGet && r.Method != http.MethodHead
	if err := h.access.authorize(who, t, writes && known); err != nil {
		return err
	}
	if !known {
		return notFound("the cache server serves %sshards/<shard>/clusters/<logical cluster>/, followed by the path of an API", Prefix)
	}
	instance, err := h.instanceID(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set(InstanceHeader, instance)
	if err := h.checkInstallation(w, r, who); err != nil {
		return err
	}
	info := t.info(r)
	end, err := h.limits.begin(who.name, info.Verb == "watch")
	if err != nil {
		return err
	}
	defer end()
	ctx := request.WithReceivedTimestamp(r.Context(), h.config.Clock.Now())
	if info.Verb == "watch" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.config.Stopping, cancel)()
	}
	claimed, err := h.claim(r, who, t)
	if err != nil {
		return err
	}
	ctx = request.WithRequestInfo(request.WithUser(ctx, who.user()), info)
	ctx = request.WithNamespace(storage.WithPlace(ctx, t.place), t.namespace)
	if !info.IsResourceRequest {
		return h.discover(w, r, t)
	}
	found, ok := h.resources.get(t)
	if !ok {
		return notFound("the cache server does not have %q of %s", t.resource, t.gvr().GroupVersion())
	}
	return h.serveResource(w, r.WithContext(ctx), found, t, info.Verb, claimed)
}

// ForScrapers serves requests of administrators, and of the user with the name Scraper.
func (h *Handler) ForScrapers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := h.access.callerOf(r)
		if (err != nil || !who.administrator) && h.access.scrapes(r) {
			next.ServeHTTP(w, r)
			return
		}
		if err == nil && !who.administrator {
			err = forbidden("only administrators of the installation and the user %s may read this", Scraper)
		}
		if err != nil {
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// instanceID returns the ID of the store.
func (h *Handler) instanceID(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.instance != "" {
		return h.instance, nil
	}
	var err error
	if h.instance, err = h.config.Backend.Incarnation(ctx); err != nil {
		return "", apierrors.NewServiceUnavailable(err.Error())
	}
	return h.instance, nil
}

func (h *Handler) serveResource(w http.ResponseWriter, r *http.Request, found *resource, t target, verb string,
	claimed claim) error {
	switch verb {
	case "list", "watch":
		read := handlers.ListResource(found, found, found.scope, false, minWatch)
		if verb == "list" && t.place == (storage.Place{}) {
			return h.pages.serve(w, r, read)
		}
		read.ServeHTTP(w, r)
		return nil
	case "get":
		if !t.one() {
			return apierrors.NewBadRequest("reading one object needs the names of one shard and one logical cluster")
		}
		handlers.GetResource(found, found.scope).ServeHTTP(w, r)
		return nil
	}
	return h.write(w, r, found, t, verb, claimed)
}

func (h *Handler) write(w http.ResponseWriter, r *http.Request, found *resource, t target, verb string, claimed claim) error {
	if r.URL.Query().Has("dryRun") {
		return errDryRun
	}
	wants := map[string]string{"create": "application/json", "update": "application/json", "patch": "application/merge-patch+json"}[verb]
	if wants != "" {
		if err := mediaType(r, wants); err != nil {
			return err
		}
	}
	if (verb == "create") != (t.name == "") {
		return apierrors.NewMethodNotSupported(t.gvr().GroupResource(), verb)
	}
	body, err := read(w, r)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if verb == "create" {
		code = http.StatusCreated
	}
	if t.name == "" && t.gvr() == shards {
		t.name = nameIn(body)
	}
	obj, err := h.parts.write(r.Context(), t, claimed, verb, func(ctx context.Context) (*unstructured.Unstructured, error) {
		switch verb {
		case "create":
			return found.create(ctx, body, metav1.NewTime(h.config.Clock.Now()))
		case "update":
			return found.update(ctx, t.name, body)
		case "patch":
			return found.patch(ctx, t.name, body)
		case "delete":
			return found.remove(ctx, t.name, body)
		}
		return nil, apierrors.NewMethodNotSupported(t.gvr().GroupResource(), verb)
	})
	if err != nil {
		return err
	}
	responsewriters.WriteObjectNegotiated(found.scope.Serializer, negotiation.DefaultEndpointRestrictions, t.gvr().GroupVersion(), w, r, code,
		obj, false)
	return nil
}
