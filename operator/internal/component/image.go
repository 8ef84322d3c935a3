package component

import (
	"cmp"
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// image returns the image for pods: the one with which pods were ready, unless the spec names another repository or version. Repository
// and version that neither has are those of the default.
func image(spec *v1alpha1.ImageSpec, ran, standard string) string {
	repository, release := cutVersion(standard)
	if spec == nil {
		spec = &v1alpha1.ImageSpec{}
	}
	named := ""
	switch {
	case spec.Digest != "":
		named = "@" + spec.Digest
	case spec.Tag != "":
		named = ":" + spec.Tag
	}
	before, runs := cutVersion(ran)
	switch {
	case ran != "" && (spec.Repository == "" || spec.Repository == before) && (named == "" || named == runs):
		return ran
	case spec.Repository != "":
		repository = spec.Repository
	}
	if named == "" {
		named = release
	}
	return repository + named
}

// Image returns the image in a spec. Repository and version that the spec does not have are those of another image.
func Image(spec *v1alpha1.ImageSpec, standard string) string { return image(spec, "", standard) }

// Wanted returns the image that a component with a spec should have. It has run with an image, unless that is empty.
func Wanted(spec *v1alpha1.ImageSpec, ran, standard string) string { return image(spec, ran, standard) }

// Version returns the version in the tag of an image, or an empty string.
func Version(image string) string {
	_, tag := cutVersion(image)
	return strings.TrimPrefix(tag, ":")
}

// ImageOf returns the image of a container, or an empty string.
func ImageOf(pod corev1.PodSpec, container string) string { return imageOf(pod, container) }

// cutVersion splits an image into its repository, and :tag or @digest. A colon before the last slash is that of a port.
func cutVersion(image string) (repository, version string) {
	if i := strings.IndexByte(image, '@'); i >= 0 {
		return image[:i], image[i:]
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i:]
	}
	return image, ""
}

// image returns the image for the pods of the component.
func (s *Scope) image() string {
	if s.held {
		return s.Status.Image
	}
	return s.Wanted()
}

// hold keeps the former image of the component until it may have another one.
func (s *Scope) hold(ctx context.Context, live *appsv1.StatefulSet) {
	wanted := s.Wanted()
	if s.Turn == nil || s.Status.Image == "" || wanted == s.Status.Image || imageOf(live.Spec.Template.Spec, s.Container) == wanted {
		return
	}
	if err := s.Turn(ctx, wanted); err != nil {
		s.held = true
		s.Report.Set(conditions.Rest, err)
	}
}

// Wanted returns the image that the component should have.
func (s *Scope) Wanted() string {
	if s.Follows != "" {
		return image(s.Spec.Image, "", s.Follows)
	}
	return image(s.Spec.Image, s.Status.Image, s.DefaultImage)
}

// imageOf returns the image of a container, or an empty string.
func imageOf(pod corev1.PodSpec, container string) string {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// versionOf returns the version in the tag of an image, or nil.
func versionOf(image string) *version.Version {
	_, tag := cutVersion(image)
	v, err := version.ParseSemantic(strings.TrimPrefix(tag, ":"))
	if err != nil {
		return nil
	}
	return v
}

// shownVersion returns the version of an image for display: its tag, or the beginning of its digest.
func shownVersion(image string) string {
	_, version := cutVersion(image)
	if digest, ok := strings.CutPrefix(version, "@"); ok {
		const shown = len("sha256:") + 12
		return digest[:min(len(digest), shown)]
	}
	return strings.TrimPrefix(version, ":")
}

// checkVersion refuses an image whose version may not understand the stored data: an older minor version than the one that has run, or a
// version that skips a minor version. Images without a version in their tag are not checked.
func (s *Scope) checkVersion(image string) error {
	runs, wanted := versionOf(":"+s.Status.Version), versionOf(image)
	if runs == nil || wanted == nil || runs.Major() == wanted.Major() && (wanted.Minor() == runs.Minor() || wanted.Minor() == runs.Minor()+1) {
		return nil
	}
	_, tag := cutVersion(image)
	if tag = tag[1:]; s.Owner.GetAnnotations()[v1alpha1.AllowVersionAnnotation] == tag {
		return nil
	}
	return conditions.Stall("VersionRefused", "spec.image: kcp %s has run; only the next minor version is allowed, not %s: "+
		"set another, or allow it with the annotation %s: %s", s.Status.Version, tag, v1alpha1.AllowVersionAnnotation, tag)
}

// imageAnnotation of a StatefulSet has the image with which a pod was ready, in case the status of its owner is lost.
const imageAnnotation = "operator.kcp.io/image"

// record writes the image of the pods and its version to the status, as soon as a pod is ready with it and may have stored data. An image
// with which no pod became ready is not recorded, so it is dropped when the spec no longer names it.
func (s *Scope) record(ctx context.Context, set *appsv1.StatefulSet) {
	status := s.Status
	status.Image = cmp.Or(status.Image, set.Annotations[imageAnnotation])
	wanted := imageOf(set.Spec.Template.Spec, s.Container)
	if status.Image != "" && wanted != s.image() {
		return // another client has changed the StatefulSet, or the spec has changed since
	}
	version := shownVersion(wanted)
	if wanted == "" || wanted == status.Image && version == status.Version {
		return
	}
	pods, err := s.podsOf(ctx)
	if err != nil {
		return // the next reconciliation tries again
	}
	for _, pod := range pods {
		if workload.Ready(&pod) && imageOf(pod.Spec, s.Container) == wanted {
			status.Image, status.Version = wanted, version
		}
	}
}
